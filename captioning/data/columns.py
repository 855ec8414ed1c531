"""Examples as columns: a split that is too large for a list.

A row is an image with some of its captions, as a file has them. Columns of rows are written while a
reader reads, on disk if they are many, and mapped into memory. All splits share them, and each
chooses some of their rows.
"""

import json
import os
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path, PurePath
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from pydantic_core import from_json, to_json

from captioning.data.caption_words import CaptionWords, Lexicon, Ragged, offsets
from captioning.data.example import Example, Reference, Splits
from captioning.data.readers.options import options
from captioning.data.rows import PREFIX, is_row
from captioning.files import write_json

FEW = 20_000  # images of a reader, of which lists are made
IN_MEMORY = 2**24  # bytes of lists that are not on disk
AT_ONCE = 2**12  # examples that are unpacked together
ABOUT = "about.json"
NO_FILE = bytes(16)
DIGEST = f"S{len(NO_FILE)}"
"""The first bytes of a SHA-256, in whose order shares are taken: no two names have the same."""


def digests(names: Iterable[str]) -> np.ndarray:
    """`[N]` digests of ids or paths; empty for a row of an Arrow file, which is no file."""
    return np.frombuffer(b"".join(map(_digest, names)), DIGEST)


def _digest(name: str) -> bytes:
    if PREFIX in name and is_row(name):
        return NO_FILE
    return sha256(name.encode(errors="surrogateescape")).digest()[: len(NO_FILE)]


@dataclass(frozen=True, eq=False)
class Columns(Sequence[Example]):
    """N examples of one or more of R rows, with C captions and F files.

    Attributes:
        rows: the numbers of each example's rows.
        root: the folder that names of files are relative to.
        texts: of each row, the JSON `[image_id, [name, ...], [caption, ...], group]` in UTF-8.
        words: of all captions; those of a caption without a word are empty.
        captions: `[R + 1]`, where the captions of each row begin.
        of_ids: `[R]` digests of the image ids.
        of_files: of each row, the digests of its paths.
        folders: of the files, and perhaps others, each with its slash.
        digest: that of all splits, if these are all examples of one of them.
        kept: the folder of these columns, if they are all of it.
    """

    rows: Ragged
    root: str
    texts: Ragged
    words: CaptionWords
    captions: np.ndarray
    of_ids: np.ndarray
    of_files: Ragged
    folders: Collection[str]
    digest: str | None = None
    kept: Path | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Example]:
        for image_id, files, captions, group, words in self.worded():
            references = tuple(map(Reference, captions, words))
            kept = tuple(reference for reference in references if reference.words)
            path, *further = map(Path, files)
            wordless = len(references) - len(kept)
            yield Example(image_id, path, kept, wordless, further=tuple(further), group=group)

    def __getitem__(self, index: Any) -> Any:
        chosen = np.array(range(len(self))[index], int)
        return self.take(chosen) if chosen.ndim else next(iter(self.take(chosen[None])))

    def take(self, chosen: np.ndarray) -> "Columns":
        """The examples of these numbers."""
        return replace(self, rows=self.rows.take(chosen), digest=None, kept=None)

    def by_image(self) -> "Columns":
        """An example of each image, in the order of their first rows."""
        order = np.argsort(self.of_ids, kind="stable")
        ordered = self.of_ids[order]
        firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(order)])
        groups = Ragged(order, np.append(firsts, len(order)))
        return replace(self, rows=groups.take(np.argsort(order[firsts])))

    @property
    def firsts(self) -> np.ndarray:
        """`[N]`, the first row of each example, which gives its id and its files."""
        return self.rows.values[self.rows.starts[:-1]]

    @property
    def ids(self) -> np.ndarray:
        """`[N]` digests of the image ids."""
        return self.of_ids[self.firsts]

    @property
    def files(self) -> Ragged:
        """The digests of the files of each example."""
        return self.of_files.take(self.firsts)

    def _captions(self) -> np.ndarray:
        """The numbers of all captions, example by example."""
        return Ragged(self.captions, self.captions).places(self.rows.values)

    def reference_words(self) -> CaptionWords:
        """The words of every reference, example by example."""
        captions = self._captions()
        captions = captions[self.words.lengths[captions] > 0]
        every = np.array_equal(captions, np.arange(len(self.words)))
        return self.words if every else self.words.take(captions)

    def reference_counts(self) -> np.ndarray:
        """`[N]` references of each example."""
        before = offsets(self.words.lengths > 0)[self.captions]
        return np.diff(offsets(np.diff(before)[self.rows.values])[self.rows.starts])

    def entries(self) -> Iterator[tuple[Any, list[str], list[str], str]]:
        """The id, the files, all captions and the group of each example.

        The last row gives the group.
        """
        texts, starts = self.texts.values.data, self.texts.starts
        for part in self._parts():
            chosen = part.rows.values
            spans = map(slice, starts[chosen].tolist(), starts[chosen + 1].tolist())
            rows = iter(from_json(b"[%b]" % b",".join(map(texts.__getitem__, spans))))
            for count in part.rows.lengths.tolist():
                image_id, names, captions, group = next(rows)
                for _, _, further, last in islice(rows, count - 1):
                    captions += further
                    group = last
                yield image_id, [f"{self.root}/{name}" for name in names], captions, group

    def worded(self) -> Iterator[tuple[Any, list[str], list[str], str, list[tuple[str, ...]]]]:
        """The `entries`, and the words of each caption."""
        words = chain.from_iterable(self.words.take(part._captions()) for part in self._parts())
        for entry in self.entries():
            yield *entry, list(islice(words, len(entry[2])))

    def _parts(self) -> "Iterator[Columns]":
        """Examples that are unpacked together."""
        for first in range(0, len(self), AT_ONCE):
            chosen = np.arange(first, min(first + AT_ONCE, len(self)))
            yield self.take(chosen) if len(chosen) < len(self) else self

    def save(self, folder: Path) -> None:
        """Write the rows of these examples alone, in their order."""
        folder.mkdir()
        rows, captions = self.rows.values, self._captions()
        lists: dict[str, tuple[Ragged, np.ndarray]] = {
            "texts": (self.texts, rows),
            "files": (self.of_files, rows),
            "words": (self.words, captions),
        }
        for name, (whole, chosen) in lists.items():
            starts = offsets(whole.lengths[chosen])
            np.save(folder / f"{name}_starts", starts)
            about = {"descr": whole.values.dtype.str, "fortran_order": False}
            with (folder / f"{name}.npy").open("wb") as file:
                np.lib.format.write_array_header_1_0(file, about | {"shape": (int(starts[-1]),)})
                for part in whole.chosen(chosen):
                    file.write(part.data)
        np.save(folder / "captions", offsets(np.diff(self.captions)[rows]))
        np.save(folder / "ids", self.of_ids[rows])
        np.save(folder / "starts", self.rows.starts)
        about = {"root": self.root, "lexicon": self.words.lexicon, "folders": list(self.folders)}
        write_json(folder / ABOUT, about)

    @classmethod
    def load(cls, folder: Path, digest: str) -> "Columns":
        """The examples of a folder, whose columns are mapped into memory."""
        about = json.loads((folder / ABOUT).read_bytes())
        of = {
            file.stem: np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)
            for file in folder.glob("*.npy")
        }
        rows = np.arange(len(of["ids"]))
        return cls(
            Ragged(rows, of["starts"]),
            about["root"],
            Ragged(of["texts"], of["texts_starts"]),
            CaptionWords(of["words"], of["words_starts"], about["lexicon"]),
            of["captions"],
            of["ids"],
            Ragged(of["files"], of["files_starts"]),
            about["folders"],
            digest,
            folder,
        )


class RowWriter:
    """Collects the rows of a reader, whose files are named below the folder `root`."""

    def __init__(self, root: str | Path):
        self._root = str(root).rstrip("/")
        self._lexicon, self._folders = Lexicon(), set[str]()
        self._texts, self._words, self._files = _Lists("B"), _Lists("i"), _Lists(DIGEST)
        self._captions, self._ids = array("q"), bytearray()
        self._rows, self._split = list[Any](), list[Sequence[str]]()  # that are written together

    def add(
        self,
        image_id: int | str,
        names: Sequence[str],
        captions: Sequence[str],
        group: str = "",
        words: Iterable[Sequence[str]] | None = None,
    ) -> None:
        """Add a row, see `Columns`; without `words`, those of the language that is read."""
        names = [str(PurePath(name)) if "//" in name or "./" in name else name for name in names]
        # before anything is added, as a row whose words cannot be had is left out
        words = list(map(options().language.split, captions) if words is None else words)
        self._split += words
        self._rows.append((image_id, names, captions, group))
        if len(self._rows) == AT_ONCE:
            self._write()

    def _write(self) -> None:
        ids, names, captions, _ = zip(*self._rows, strict=True) if self._rows else [()] * 4
        texts = [*map(to_json, self._rows)]
        files = [f"{self._root}/{name}" for name in chain.from_iterable(names)]
        numbers = map(self._lexicon.__getitem__, chain.from_iterable(self._split))
        self._texts.extend(b"".join(texts), map(len, texts))
        self._words.extend(array("i", numbers), map(len, self._split))
        self._files.extend(b"".join(map(_digest, files)), map(len, names))
        self._folders.update([file[: file.rindex("/") + 1] for file in files])
        self._captions.extend(map(len, captions))
        self._ids += b"".join(map(_digest, map(str, ids)))
        self._rows, self._split = [], []

    def finish(self) -> Columns:
        """An example of each row."""
        self._write()
        words, rows = self._words.finish(), np.arange(len(self._captions) + 1)
        return Columns(
            Ragged(rows[:-1], rows),
            self._root,
            self._texts.finish(),
            CaptionWords(words.values, words.starts, list(self._lexicon)),
            offsets(self._captions),
            np.frombuffer(self._ids, DIGEST),
            self._files.finish(),
            self._folders,
        )


class _Lists:
    """Lists one behind the other; the last ones are in memory, the others in a file."""

    def __init__(self, kind: str):
        self._kind, self._last, self._lengths = kind, bytearray(), array("q")
        self._file: Any = None

    def extend(self, values: Any, lengths: Iterable[int]) -> None:
        self._last += values
        self._lengths.extend(lengths)
        if len(self._last) > IN_MEMORY:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            cache = options().cache
            folder = cache if cache and os.access(cache, os.W_OK) else None
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115 - as long as the lists
        self._file.write(self._last)
        self._last.clear()

    def finish(self) -> Ragged:
        if self._file is None:
            values = np.frombuffer(self._last, self._kind)
        else:
            self._write()
            values = np.memmap(self._file, self._kind, "r")
        return Ragged(values, offsets(self._lengths))


def columns_of(examples: Sequence[Example]) -> Columns:
    """Examples as columns, which have neither boxes nor sentences to translate."""
    if isinstance(examples, Columns):
        return examples
    writer = RowWriter("/" if examples and examples[0].path.is_absolute() else ".")
    for example in examples:
        references = [*example.references, *[Reference("", ())] * example.wordless]
        writer.add(
            example.image_id,
            [str(path).lstrip("/") for path in example.paths],
            [reference.text for reference in references],
            example.group,
            words=[reference.words for reference in references],
        )
    return writer.finish()


def take(examples: Sequence[Example], chosen: np.ndarray) -> Sequence[Example]:
    """The examples of these numbers, or where these are true."""
    numbers = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
    if isinstance(examples, Columns):
        return examples.take(numbers)
    return [examples[number] for number in numbers.tolist()]


def data_digest(splits: Splits) -> str:
    """SHA-256 over ids, file names, captions and sources of all splits.

    Equal digests mean equal data.
    """
    known = {getattr(examples, "digest", None) for examples in splits.values()}
    if len(known) == 1 and None not in known:
        return str(known.pop())
    sha = sha256()
    for name, examples in sorted(splits.items()):
        for content in _contents(examples):
            sha.update(repr((name, *content)).encode())
    return sha.hexdigest()


def _contents(examples: Sequence[Example]) -> Iterator[tuple[Any, ...]]:
    """What the digest is of: id, file name, references, and what else there is."""
    if isinstance(examples, Columns):
        for image_id, files, captions, _, words in examples.worded():
            references = [each for each in zip(captions, words, strict=True) if each[1]]
            first, *further = [file.rpartition("/")[2] for file in files]
            yield image_id, first, references, *([further] if further else [])
    else:
        for e in examples:
            references = [(reference.text, reference.words) for reference in e.references]
            further = [path.name for path in e.further]
            sources = [e.source] if e.source else []
            yield e.image_id, e.path.name, references, *sources, *([further] if further else [])


def file_names(examples: Sequence[Example]) -> Iterator[list[str]]:
    """The paths of each example's files as text."""
    if isinstance(examples, Columns):
        return (files for _, files, *_ in examples.entries())
    return ([*map(str, example.paths)] for example in examples)


def file_counts(examples: Sequence[Example]) -> np.ndarray:
    """`[N]` images of each example."""
    if isinstance(examples, Columns):
        return examples.of_files.lengths[examples.firsts]
    return np.array([len(example.paths) for example in examples], np.int64)


def files_of(examples: Sequence[Example]) -> tuple[Ragged, Collection[str]]:
    """The digests of each example's files, and their folders, each with its slash."""
    if isinstance(examples, Columns):
        return examples.files, examples.folders
    files = [*chain.from_iterable(file_names(examples))]
    folders = {file[: file.rfind("/") + 1] for file in files}
    return Ragged(digests(files), offsets(file_counts(examples))), folders


@dataclass(frozen=True)
class FirstPaths(Sequence[Path]):
    """The first image of each example, as a path that is made when it is asked for."""

    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Path]:
        return map(Path, path_names(self))

    def __getitem__(self, index: Any) -> Any:
        one = take(self.examples, np.array([range(len(self))[index]]))
        return Path(next(path_names(FirstPaths(one))))


def path_names(paths: Iterable[Path | str]) -> Iterator[str]:
    """Paths as text, which is faster than to make them."""
    if isinstance(paths, FirstPaths):
        return (files[0] for files in file_names(paths.examples))
    return map(str, paths)
