"""A folder of photographs as examples, with the captions of a file or without any."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from captioning.data.example import Example, photographs
from captioning.data.readers.coco import CocoSplit
from captioning.data.readers.csv import table_examples
from captioning.data.readers.files import read_json
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.splits import check_splits
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES, photographs_below


@dataclass(frozen=True, slots=True)
class PhotographFolder:
    """The photographs in a folder and in those below it, sorted by their paths.

    Attributes:
        examples: an image's id is that of the file of references, or its path from the folder on.
        absent: of how many photographs the file has references that the folder has not.
    """

    examples: list[Example]
    absent: int

    @classmethod
    def read(cls, folder: Path, references: Path | None) -> "PhotographFolder":
        """List the folder and read the captions; no photograph is opened.

        Args:
            folder: of photographs.
            references: COCO's own layout, Karpathy's, or a table, whose file names count from `folder` on.

        Raises:
            CaptioningError: the folder cannot be looked into or has no photographs, the file cannot be read, has none
                of them, or one of them twice.
        """
        paths = sorted(photographs_below(folder, _refuse))
        if not paths:
            raise CaptioningError(
                f"there are no photographs in images={quoted(folder)}: name a folder with files of "
                f"{', '.join(SUFFIXES)}"
            )
        plain = [Example(0, path, ()) for path in paths]
        found = [
            replace(example, image_id=name) for example, name in zip(plain, photographs(plain, folder), strict=True)
        ]
        if references is None:
            return cls(found, 0)
        listed = examples_of(folder, references)
        captioned = {example.path: example for example in listed}
        check_splits({"images": [*listed, *(each for each in found if each.path not in captioned)]}, references)
        absent = len(captioned.keys() - paths)
        if absent == len(captioned):
            first = photographs(list(captioned.values())[:1], folder)[0]
            raise CaptioningError(
                f"references={quoted(references)} and images={quoted(folder)} have no photograph in common: its first "
                f"is {quoted(first)}, counted from that folder on"
            )
        return cls([captioned.get(example.path, example) for example in found], absent)


def examples_of(folder: Path, references: Path) -> list[Example]:
    """All examples of a file of captions, in the layout that it has.

    Args:
        folder: of the photographs.
        references: JSON in COCO's own layout or Karpathy's; other files are tables.

    Raises:
        CaptioningError: as for the readers of these layouts.
    """
    if references.suffix.lower() != ".json":
        return table_examples(folder, references)
    content = read_json(references)
    if isinstance(content, dict) and "annotations" not in content:
        return KarpathyReader(folder, references).examples()
    return CocoSplit(folder, references)()


def _refuse(error: OSError) -> NoReturn:
    raise CaptioningError(f"cannot look into images={quoted(error.filename)}: {error.strerror}") from error
