"""Shared parts of the readers: types of entries, splits and checks.

A reader is a class whose objects are called without arguments and return the splits, or a function:

>>> def one_dog():
...     text = "A dog runs."
...     dog = Example("dog", Path("dog.jpg"), (Reference(text, split_words(text)),))
...     return {"train": [dog], "val": [], "test": []}
>>> splits = run_reader(one_dog, images=False, needed=["train"])
>>> splits["train"][0].references[0].words
('a', 'dog', 'runs')
"""

import gc
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from sys import intern
from typing import Annotated, Any, TypeVar

import numpy as np
from annotated_types import MaxLen, MinLen
from pydantic import AfterValidator, FailFast, Field, Strict, ValidationInfo

from captioning.config.types import Probability, UserPath, rising
from captioning.data.columns import FEW, Columns, digests, take
from captioning.data.example import SPLITS, Example, Reference, Split, Splits
from captioning.data.readers.ids import match_names
from captioning.data.readers.kept import read_once
from captioning.data.readers.on_disk import on_disk
from captioning.data.readers.options import options, reading
from captioning.data.readers.parsing import ImageId, Text, at, lines, or_skip, reason
from captioning.data.words import ENGLISH_WORDS, Language, split_words
from captioning.errors import CaptioningError, listed, quoted
from captioning.files import JOIN, MAX_CHARACTERS

TEXTS = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".token")
T = TypeVar("T")

log = logging.getLogger(__name__)


def _below(name: str) -> str:
    if "\0" in name or ".." in re.split(r"[/\\]", name):
        raise ValueError("must be a path below the folder of photographs")
    return name.lstrip("/")  # of another machine or of this one: the file is looked for below


@contextmanager
def _where_files_are(setting: str = "") -> Iterator[None]:
    """Add to the error of an absent file what there is, and how to set its place."""
    try:
        yield
    except FileNotFoundError as error:
        error.add_note(
            "set data.root to the folder of the data set, or name this file in "
            f"data.reader{setting}"
        )
        for folder in Path(error.filename or "").parents[:2]:
            files = sorted(file.name for file in folder.glob("*.*") if file.suffix in TEXTS)
            if files:
                error.add_note(f"{quoted(folder)} has {listed(files, 5)}")
        raise


def existing(path: Path, info: ValidationInfo) -> Path:
    """Return the path of a file that a reader cannot do without; it must be there.

    An evaluation finds out when it reads, as it may not need the splits of a file.
    """
    if options().needed == SPLITS:
        with _where_files_are(f".{info.field_name}"):
            path.stat()
    return path


SourceFile = Annotated[UserPath, AfterValidator(existing)]
Folder = Annotated[Text, AfterValidator(_below)]
FileName = Annotated[Folder, Field(pattern=r"[^./]")]
FailFastList = Annotated[list[T], FailFast()]
"""A long list; errors name its first wrong entry."""
ReadSplits = dict[str, list[Example]]
"""Of a large set the lists are `Columns`."""
Reader = Callable[[], ReadSplits]
OfEachSplit = Annotated[Mapping[Split, T], MinLen(3)]
Share = Annotated[tuple[Probability, Probability], Strict(False), AfterValidator(rising)]
Part = UserPath | Share | None
"""The images of a file that make a split: the two ends of a share, such as [0, 0.8], or a text file
with one image id (or file name, if photographs have no ids) per line; None: no image.
"""

OTHER_NAMES = {
    "train": ["training", "restval"],  # as Karpathy calls what joins training
    "val": ["validation", "valid", "validate", "dev"],
    "test": ["testing"],
}
"""What files and sets call a split besides its name, in any case."""
NO_WORDS = "{:.200} has no caption with a word; remove it or give it one"
SHARES: Mapping[str, Part] = {"train": (0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1)}
"""The parts of images that no file divides."""


@dataclass(slots=True)
class Sentence:
    """A caption, and its words if the file has them."""

    raw: Text | None = None
    tokens: Annotated[tuple[Text, ...], MaxLen(MAX_CHARACTERS // 2)] | None = None


@dataclass(slots=True)
class Entry:
    """What a file has of an example beside its images: its captions and its group."""

    captions: list[str]
    group: str


def make_example(
    image_id: ImageId,
    paths: tuple[Path, ...],
    captions: Iterable[str | Sentence],
    split: Callable[[str], tuple[str, ...]] = split_words,
    group: str = "",
    bare: bool = False,
) -> Example:
    """Make an example of its images and captions, without captions that have no words; only a
    `bare` one may have none.
    """
    path, *further = paths
    references, wordless = [], 0
    for given in captions:
        caption = given if isinstance(given, Sentence) else Sentence(given)
        text, words = caption.raw, caption.tokens
        if text is None:
            text = " ".join(words or ())
            if words is None or len(text) > MAX_CHARACTERS:
                raise CaptioningError(
                    f"{path.name:.200}: a caption needs raw or tokens of at most {MAX_CHARACTERS} "
                    "characters"
                )
        if words is None:
            words = tuple(map(intern, split(text)))
        if words:
            references.append(Reference(text, words))
        else:
            wordless += 1
    if not references and not bare:
        raise CaptioningError(NO_WORDS.format(path.name))
    return Example(image_id, path, tuple(references), wordless, further=tuple(further), group=group)


def choose_examples(part: Part, images: Columns, source: Path, bare: bool = False) -> Any:
    """The examples of the file `source` that belong to a split, see `choose`; without captions if
    it is `bare`.
    """
    with at(source):
        chosen = choose(part, images.ids, lambda: [str(e[0]) for e in images.entries()], source)
        examples: Any = images.take(chosen)
        if not bare:
            worded = examples.reference_counts() > 0
            for example in take(examples, ~worded):
                with or_skip():
                    raise CaptioningError(NO_WORDS.format(example.path.name))
            examples = take(examples, worded)
    return examples if len(images) > FEW else list(examples)


def split_called(name: object) -> str | None:
    """The split that a file or a set calls by this name; see `OTHER_NAMES`."""
    called = str(name).strip().lower()
    names = ((split, (split, *OTHER_NAMES[split])) for split in SPLITS)
    return next((split for split, own in names if called in own), None)


def complete(splits: ReadSplits, source: Path) -> ReadSplits:
    """The splits of a file, with shares of train in place of val, or of val and test, if it has no
    images for these.
    """
    if splits["val"] or not splits["train"]:
        return splits
    train: Any = splits["train"]
    names = [str(example.image_id) for example in train] if isinstance(train, list) else []
    ids = digests(names) if names else train.ids
    shares = {"train": (0, 0.9), "val": (0.9, 1)} if splits["test"] else SHARES
    log.info("%s has no images for val: %s are shares of train", source, ", ".join(shares))
    for split, part in shares.items():
        chosen: Any = take(train, choose(part, ids, lambda: names, source))
        splits[split] = chosen
    return splits


def choose(part: Part, ids: np.ndarray, names: Callable[[], list[str]], source: Path) -> np.ndarray:
    """Choose the images of the file `source` that belong to a split, by their positions.

    Shares are taken from a pseudorandom order that depends on the ids alone, so that adjacent
    shares, such as [0, 0.8] and [0.8, 1], are disjoint and complete; the result is in the file's
    order. A list keeps its own order.

    Args:
        part: the split.
        ids: `[N]` digests of the images' ids.
        names: gives the ids as text.
        source: the file.
    """
    if part is None:
        return np.arange(0)
    order = np.argsort(ids, kind="stable")
    if isinstance(part, tuple):
        start, end = (round(share * len(ids)) for share in part)
        return np.sort(order[start:end])
    listed = {place: line.strip().lstrip("/") for place, line in lines(part, math.inf)}
    asked = digests(listed.values())
    found = np.searchsorted(ids, asked, sorter=order)
    if (found < np.searchsorted(ids, asked, "right", sorter=order)).all():
        return order[found]
    known = {name: position for position, name in enumerate(names())}
    matched, chosen = match_names(listed.values(), known), []
    for location, name in listed.items():
        with or_skip():
            if name not in matched:
                raise CaptioningError(
                    f"{location}: {name:.200} is not among the {len(ids)} images of {source}"
                )
            chosen.append(known[matched[name]])
    return np.array(chosen, np.int64)


def run_reader(
    reader: Reader,
    images: bool = True,
    language: Language = ENGLISH_WORDS,
    skipped: list[Exception] | None = None,
    needed: Collection[str] = SPLITS,
    groups: str | None = None,
    cache: Path | None = None,
) -> Splits:
    """Call a reader, and split its captions again unless they are in English words.

    The photographs must be on disk if a backbone reads `images`. Malformed entries, images
    without captions and absent photographs are errors, or are left out and listed in `skipped`.
    The splits that are `needed` must have images. The column `groups` gives each its group. Large
    sets are kept below the folder `cache`, see `read_once`.
    """
    gc.disable()  # readers produce no garbage, and for COCO it would take half of the time
    try:
        with reading(skipped=skipped, needed=needed, groups=groups, language=language, cache=cache):
            splits = read_once(reader, images, partial(_read, reader, images))
            _check_needed(splits)
        return splits
    finally:
        gc.enable()


def _read(reader: Reader, images: bool) -> Splits:
    """What a reader returns, with the photographs that are there, in words of the language."""
    language, skipped = options().language, options().skipped
    with _where_files_are():
        splits: Splits = reader()
    if skipped:  # one file of several splits is read for each
        told = [(str(error), *getattr(error, "__notes__", ())) for error in skipped]
        skipped[:] = dict(zip(told, skipped, strict=True)).values()
    if images:
        root = "root" if hasattr(reader, "root") else "splits.train.root"
        splits = on_disk(splits, skipped, f"data.reader.{root}")
    if language != ENGLISH_WORDS:
        splits = {name: _in_words(examples, language) for name, examples in splits.items()}
    return splits


def _check_needed(splits: Mapping[str, Sequence[Example]]) -> None:
    """Refuse splits without images that may not be empty."""
    empty = [name for name in splits if name in options().needed and not splits[name]]
    if not empty:
        return
    message = f"no images for {', '.join(empty)}; every split needs at least one"
    if empty == ["test"]:
        message += ", or a run has test=false"
    skipped = options().skipped
    if skipped:
        message += f"; the first of {len(skipped)} entries left out: {reason(skipped[0])}"
    raise CaptioningError(message)


def _in_words(examples: Sequence[Example], language: Language) -> Sequence[Example]:
    """The examples with words of `language`, without captions that have none; nouns count other
    words.
    """
    if isinstance(examples, Columns):  # which have them already
        return examples
    worded = []
    for example in examples:
        with or_skip():
            texts = [reference.text for reference in example.references]
            again = make_example(
                example.image_id, example.paths, texts, language.split, bare=not texts
            )
            wordless = example.wordless + again.wordless
            worded.append(replace(example, references=again.references, wordless=wordless))
    return worded


def check_splits(splits: ReadSplits, *sources: object, shared_ids: bool = False) -> ReadSplits:
    """The splits, of which none is empty that is needed, and no image occurs twice.

    `sources` name the files. With `shared_ids` images of two splits may have one id. Where
    entries may be left out, the second of such images is removed.
    """
    with at(", ".join(map(str, sources))):
        _check_needed(splits)
        columns = [each for each in splits.values() if isinstance(each, Columns)]
        if len(columns) == len(splits):
            if _all_differ(columns, shared_ids):
                return splits
            splits = {name: list(examples) for name, examples in splits.items()}
        first: dict[ImageId | tuple[str, ...], tuple[str, Example]] = {}
        for split, examples in splits.items():
            for example in tuple(examples):
                with or_skip():
                    paths = tuple(map(str, example.paths))
                    for key in [paths] if shared_ids else [example.image_id, paths]:
                        if key in first:
                            examples.remove(example)
                            name = JOIN.join(key) if isinstance(key, tuple) else key
                            raise CaptioningError(
                                f"{name!s:.200} occurs twice, for {_occurrence(*first[key])} and "
                                f"{_occurrence(split, example)}"
                            )
                        first[key] = split, example
    return splits


def _all_differ(splits: Collection[Columns], shared_ids: bool) -> bool:
    """Whether no two examples have one file, or one id unless these may be shared."""
    files_differ = _differ([columns.files.values for columns in splits])
    return files_differ and (shared_ids or _differ([columns.ids for columns in splits]))


def _differ(digests: Sequence[np.ndarray]) -> bool:
    """Whether no two of the names are the same, apart from what is no file."""
    names = np.concatenate(digests)
    names.sort()
    again = names[1:][names[1:] == names[:-1]]
    return not (again != np.bytes_(b"")).any()


def _occurrence(split: str, example: Example) -> str:
    return f"{split} {example.image_id!s:.200} ({example.path.name:.200})"
