"""What all readers of photographs share: how entries of a file become examples, and when splits cannot be used."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, TypeVar

from captioning.data.example import Example, Reference, Splits
from captioning.data.words import split_words
from captioning.errors import CaptioningError, quoted

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
        raise CaptioningError(f"{place} is not of the {layout}: {type(error).__name__} {error!s:.200}") from error


def photograph_path(root: Path, name: str, place: str) -> Path:
    """The path of a photograph below `root`.

    Raises:
        CaptioningError: the name leaves the root, or no file can have it.
    """
    below = PurePath(name)
    if below.is_absolute() or ".." in below.parts or not below.name:
        raise CaptioningError(f"{place}: the path {name!r:.200} leaves the folder of photographs")
    if "\0" in name or len(name) > MAX_CHARACTERS or not is_whole(name):
        raise CaptioningError(f"{place}: no file can have the name {name!r:.200}")
    return root / below


def make_reference(text: str, place: str, words: Sequence[str] | None = None) -> Reference | None:
    """A caption as a reference, or None where it has no words: neither a model nor a scorer can read it then.

    Args:
        text: the caption as written.
        place: of the caption, for errors.
        words: its words, if the file has them; otherwise `split_words(text)`.

    Raises:
        CaptioningError: the caption is too long, is not text, or is text that no file could hold; so are the words.
        TypeError: a word is not text.
    """
    _check_text(text, "caption", place)
    if words is None:
        words = split_words(text)
    else:
        _check_text(" ".join(words), "list of tokens", place)
    return Reference(text, tuple(words)) if words else None


def make_example(image_id: int | str, path: Path, place: str, references: Iterable[Reference | None]) -> Example:
    """A photograph with those of its captions that have words.

    Raises:
        CaptioningError: none has, or as for `check_id`.
    """
    check_id(image_id, place)
    kept = tuple(reference for reference in references if reference)
    if not kept:
        raise CaptioningError(f"{place}: {path.name:.200} has no caption with a word; remove it or give it one")
    return Example(image_id, path, kept)


def check_id(image_id: Any, place: str) -> None:
    """Refuses what cannot stand for an image in every file.

    Raises:
        CaptioningError: the id is neither a number nor text, or text as no caption may be either.
    """
    if isinstance(image_id, bool) or not isinstance(image_id, int | str):
        raise CaptioningError(f"{place}: the image id {image_id!r:.200} is neither a whole number nor text")
    if isinstance(image_id, str):
        _check_text(image_id, "image id", place)


def _check_text(text: Any, what: str, place: str) -> None:
    if not isinstance(text, str):
        raise CaptioningError(f"{place}: the {what} {text!r:.60} is not text")
    if len(text) > MAX_CHARACTERS:
        raise CaptioningError(
            f"{place}: {'an' if what[0] in 'aeiou' else 'a'} {what} of {len(text):,} characters; the scorers compare "
            f"captions of at most {MAX_CHARACTERS:,}. Shorten it or remove it"
        )
    if not is_whole(text):
        raise CaptioningError(f"{place}: the {what} {text!r:.99} holds half a character, such as a cut emoji")


def is_whole(text: str) -> bool:
    """Whether a file can hold `text`; JSON can also say one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
                name = str(example.image_id)
                raise CaptioningError(
                    f"{source}: the image id {name:.200} occurs twice, for {first:.200} and {mine:.200}"
                )
            mine = f"{split} {example.image_id}"
            first = paths.setdefault(example.path, mine)
            if first is not mine:
                name = str(example.path)
                raise CaptioningError(
                    f"{source}: the photograph {name:.200} occurs twice, as {first:.200} and {mine:.200}"
                )


def check_photographs(splits: Splits) -> None:
    """Refuses photographs that are not on disk.

    Raises:
        CaptioningError: counts them and names the first.
    """
    paths = [example.path for examples in splits.values() for example in examples]
    absent = absent_files(paths)
    if absent:
        names = ", ".join(quoted(path) for path in absent[:3])
        raise CaptioningError(
            f"{len(absent)} of {len(paths)} photographs are not on disk: {names}{', ...' if len(absent) > 3 else ''}; "
            "set data.root to the folder that holds them"
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
            raise CaptioningError(f"cannot list the photographs in {folder!s:.400}: {error.strerror}") from error
        absent += [path for path in files if path.name not in present]
    return absent
