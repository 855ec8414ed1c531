"""What all readers of photographs share: examples from entries of a file, and checks of splits."""

import gc
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from annotated_types import MinLen

from captioning.data.example import Example, Reference, Splits
from captioning.data.vocabulary import split_words
from captioning.errors import CaptioningError, quoted

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
T = TypeVar("T")
OfEachSplit = Annotated[Mapping[Split, T], MinLen(3)]


def read(reader: Callable[[], Splits], photographs: bool = True) -> Splits:
    """The examples of a reader, without garbage collection meanwhile: nothing that it builds is garbage.

    The collector would go again and again through millions of words; at the size of COCO that is half of the time.
    With `photographs` these must be on disk, as they must for every backbone that reads them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        splits = reader()
        if photographs:
            check_photographs(splits)
        return splits
    except FileNotFoundError as error:
        error.add_note("data.root must be the folder of the data set, or a setting in data.reader name this file")
        raise
    finally:
        if collecting:
            gc.enable()


def make_reference(text: str, words: Sequence[str] | None = None) -> Reference | None:
    """A caption as a reference, or None without words, which neither a model nor a scorer can read.

    The words are `split_words(text)` where the file has none.
    """
    words = split_words(text) if words is None else words
    return Reference(text, tuple(words)) if words else None


def make_example(image_id: int | str, path: Path, references: Iterable[Reference | None], place: str) -> Example:
    """A photograph with those of its captions that have words; errors name `place` in a file."""
    kept = tuple(reference for reference in references if reference)
    if not kept:
        raise CaptioningError(f"{place:.400}: {path.name:.200} has no caption with a word; remove it or give it one")
    return Example(image_id, path, kept)


def check_splits(splits: Mapping[str, Sequence[Example]], source: object) -> None:
    """Refuse splits without images, or with an image twice; `source` names the file or files."""
    empty = [split for split, examples in splits.items() if not examples]
    if empty:
        raise CaptioningError(f"{source} has no images for {', '.join(empty)}; each split needs some")
    for key, other in (("image_id", "path"), ("path", "image_id")):
        seen: dict[object, str] = {}
        for split, examples in splits.items():
            for example in examples:
                mine = f"{split} {getattr(example, other)}"
                first = seen.setdefault(value := getattr(example, key), mine)
                if first is not mine:
                    twice = f"the {key} {value!s:.200} occurs twice, for {first:.200} and {mine:.200}"
                    raise CaptioningError(f"{source}: {twice}")


def check_photographs(splits: Splits) -> None:
    """Refuse photographs that are not on disk."""
    paths = [example.path for examples in splits.values() for example in examples]
    if absent := absent_files(paths):
        names = ", ".join(quoted(path) for path in absent[:3])
        raise CaptioningError(
            f"{len(absent)} of {len(paths)} photographs are not on disk: {names}{', ...' if len(absent) > 3 else ''}; "
            "set data.root to the folder that holds them"
        )


def absent_files(paths: list[Path]) -> list[Path]:
    """Which of `paths` are not on disk, by one listing per folder: a call per file takes minutes on a network."""
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
        absent += [path for path in files if path.name not in present]
    return absent
