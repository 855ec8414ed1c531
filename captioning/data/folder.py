"""A folder of photographs as examples, with the captions of a file or without any."""

from pathlib import Path
from typing import Any, NoReturn

from captioning.data.example import Example, photographs
from captioning.data.readers.coco import CocoSplit
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import check_splits, read_json
from captioning.data.readers.table import table_examples
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES, photographs_below


def read_folder(folder: Path, references: Path | None) -> tuple[list[Example], int]:
    """The photographs in a folder and in those below it, sorted by path, and how many of a file are not among them.

    An image's id is that of the file of references, or its path from the folder on. The names of photographs in the
    file count from the folder on. No photograph is opened.
    """
    paths = sorted(photographs_below(folder, _raise))
    if not paths:
        kinds = ", ".join(SUFFIXES)
        raise CaptioningError(
            f"there are no photographs in images={quoted(folder)}: name a folder with files of {kinds}"
        )
    names = photographs([Example(0, path, ()) for path in paths], folder)
    found = [Example(name, path, ()) for name, path in zip(names, paths, strict=True)]
    if references is None:
        return found, 0
    listed = examples_of(folder, references)
    captioned = {example.path: example for example in listed}
    check_splits({"images": [*listed, *(each for each in found if each.path not in captioned)]}, references)
    absent = len(captioned.keys() - paths)
    if absent == len(captioned):
        first = "".join(map(quoted, photographs(listed[:1], folder)))
        raise CaptioningError(
            f"references={quoted(references)} and images={quoted(folder)} have no photograph in common; the first of "
            f"the references: {first or 'none'}"
        )
    return [captioned.get(example.path, example) for example in found], absent


def examples_of(folder: Path, references: Path) -> list[Example]:
    """All examples of a file of captions: JSON in COCO's own layout or Karpathy's; other files are tables."""
    if references.suffix.lower() != ".json":
        return table_examples(folder, references)
    if "annotations" in read_json(references, dict[str, Any], "COCO's or Karpathy's layout"):
        return CocoSplit(folder, references)()
    return KarpathyReader(folder, references).examples()


def _raise(error: OSError) -> NoReturn:
    raise error
