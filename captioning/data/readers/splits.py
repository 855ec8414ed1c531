"""What all readers of photographs share: how entries of a file become examples, and when splits cannot be used."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TypeVar

from captioning.data.example import Example, Reference
from captioning.data.words import split_words
from captioning.errors import CaptioningError

SPLITS = ("train", "val", "test")
MAX_CHARACTERS = 10_000
"""Of a caption. No data set of captions comes near; one of a million silences METEOR, hours after the start."""
T = TypeVar("T")


@contextmanager
def entry(place: str, layout: str) -> Iterator[None]:
    """While the entry at `place` of a JSON file is read: what is missing or of another type is told as an error.

    Raises:
        CaptioningError: the entry is not of the `layout`.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise CaptioningError(f"{place} is not of the {layout}: {type(error).__name__} {error}") from error


def photograph_path(root: Path, name: str, place: str) -> Path:
    """The path of a photograph below `root`.

    Raises:
        CaptioningError: the name leaves the root, or no file can have it.
    """
    below = PurePath(name)
    if below.is_absolute() or ".." in below.parts or not below.name:
        raise CaptioningError(f"{place}: the path {name!r} leaves the folder of photographs")
    if "\0" in name or _broken(name):
        raise CaptioningError(f"{place}: no file can have the name {name!r}")
    return root / below


def make_reference(text: str, place: str, words: Sequence[str] | None = None) -> Reference | None:
    """A caption as a reference, or None where it has no words: neither a model nor a scorer can read it then.

    Args:
        text: the caption as written.
        place: of the caption, for errors.
        words: its words, if the file has them; otherwise `split_words(text)`.

    Raises:
        CaptioningError: the caption is too long, is not text, or is text that no file could hold.
    """
    if not isinstance(text, str):
        raise CaptioningError(f"{place}: the caption {text!r:.60} is not text")
    if len(text) > MAX_CHARACTERS:
        raise CaptioningError(
            f"{place}: a caption of {len(text):,} characters; the scorers compare captions of at most "
            f"{MAX_CHARACTERS:,}. Shorten it or remove it"
        )
    if _broken(text):
        raise CaptioningError(f"{place}: the caption {text!r:.99} holds half a character, such as a cut emoji")
    words = split_words(text) if words is None else words
    return Reference(text, tuple(words)) if words else None


def make_example(image_id: int | str, path: Path, place: str, references: Iterable[Reference | None]) -> Example:
    """A photograph with those of its captions that have words.

    Raises:
        CaptioningError: none has, or the id is neither a number nor text.
    """
    if isinstance(image_id, bool) or not isinstance(image_id, int | str):
        raise CaptioningError(f"{place}: the image id {image_id!r} is neither a whole number nor text")
    kept = tuple(reference for reference in references if reference)
    if not kept:
        raise CaptioningError(f"{place}: {path.name} has no caption with a word; remove it or give it one")
    return Example(image_id, path, kept)


def three(splits: Mapping[str, T]) -> dict[str, T]:
    """What a configuration says of each split, in the order of `SPLITS`.

    Raises:
        CaptioningError: of more or fewer splits.
    """
    if set(splits) != set(SPLITS):
        raise CaptioningError(f"data.reader.splits has {', '.join(splits) or 'none'}; it must have {', '.join(SPLITS)}")
    return {split: splits[split] for split in SPLITS}


def check_splits(splits: Mapping[str, Sequence[Example]], source: object) -> None:
    """Refuses splits that no comparison can be made on; `source` names the file or files for errors.

    Raises:
        CaptioningError: a split without images, or an image id or a photograph that occurs twice.
    """
    empty = [split for split, examples in splits.items() if not examples]
    if empty:
        raise CaptioningError(f"{source} has no images for {', '.join(empty)}; each split needs some")
    ids: dict[int | str, str] = {}
    paths: dict[Path, str] = {}
    for split, examples in splits.items():
        for example in examples:
            mine = f"{split} {example.path}"
            first = ids.setdefault(example.image_id, mine)
            if first is not mine:
                raise CaptioningError(f"{source}: the image id {example.image_id} occurs twice, for {first} and {mine}")
            mine = f"{split} {example.image_id}"
            first = paths.setdefault(example.path, mine)
            if first is not mine:
                raise CaptioningError(f"{source}: the photograph {example.path} occurs twice, as {first} and {mine}")


def check_root(root: Path) -> None:
    """Refuses a folder of photographs that does not exist.

    Raises:
        CaptioningError: says which.
    """
    if not root.is_dir():
        raise CaptioningError(f"the folder of photographs {root} does not exist; set data.root to it")


def check_photographs(examples: Sequence[Example], root: Path) -> None:
    """Refuses photographs that are not on disk.

    Raises:
        CaptioningError: counts them and names the first.
    """
    absent = absent_files([example.path for example in examples])
    if absent:
        names = ", ".join(str(path.relative_to(root)) for path in absent[:3])
        raise CaptioningError(
            f"{len(absent)} of {len(examples)} photographs are not below {root}: {names}"
            f"{', ...' if len(absent) > 3 else ''}; set data.root to the folder that holds them"
        )


def absent_files(paths: list[Path]) -> list[Path]:
    """Which of `paths` are not on disk, by one listing per folder: a call per file takes minutes on a network.

    Raises:
        CaptioningError: a folder cannot be listed.
    """
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        folders[path.parent].append(path)
    absent: list[Path] = []
    for folder, files in folders.items():
        try:
            with os.scandir(folder) as entries:
                present = {entry.name for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            present = set()
        except OSError as error:
            raise CaptioningError(f"cannot list the photographs in {folder}: {error.strerror}") from error
        absent += [path for path in files if path.name not in present]
    return absent


def _broken(text: str) -> bool:
    """Whether `text` holds what JSON can say and no file can hold: one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
