"""Read a folder of photographs as examples, with captions from a file or without captions."""

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
    """Find the photographs in a folder and its subfolders, sorted by path, and count missing ones.

    Missing are the photographs of the file `references` that the folder lacks. An image's id is that of the file, or
    its path relative to the folder; file names are relative to the folder too. No photograph is opened.
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
    """All examples of a caption file: JSON in COCO's or Karpathy's layout, otherwise a table."""
    if references.suffix.lower() != ".json":
        return table_examples(folder, references)
    if "annotations" in read_json(references, dict[str, Any], "COCO's or Karpathy's layout"):
        return CocoSplit(folder, references)()
    return KarpathyReader(folder, references).examples()


def _raise(error: OSError) -> NoReturn:
    raise error
