"""Reader of `annotation.json` of R2Gen: radiology reports, each with one or more images.

Layout: `{"train": [{"id", "report", "image_path": [...]}, ...], "val": [...], "test": [...]}`.
Source: Chen et al., "Generating Radiology Reports via Memory-driven Transformer", EMNLP 2020.
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import MinLen

from captioning.config.types import UserPath, validated_class
from captioning.data.example import SPLITS
from captioning.data.readers.parsing import ImageId, Text, at, or_skip, read_json
from captioning.data.readers.reading import (
    FailFastList,
    FileName,
    ReadSplits,
    SourceFile,
    check_splits,
    make_example,
)

NAME = "the layout of R2Gen's annotation.json (data=r2gen)"


@dataclass
class _Report:
    id: ImageId
    report: Text
    image_path: Annotated[list[FileName], MinLen(1)]


@dataclass
class _File:
    train: FailFastList[_Report]
    val: FailFastList[_Report]
    test: FailFastList[_Report]


@validated_class
class R2GenReader:
    """Reports and their images, in the file's order and splits.

    The words are `split_words(report)`; reports without words are left out.

    Args:
        root: folder of the images; an image is `root/image_path`.
        annotations: the JSON file.
    """

    root: UserPath
    annotations: SourceFile

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`."""
        file = read_json(self.annotations, _File, NAME)
        splits: ReadSplits = {split: [] for split in SPLITS}
        with at(self.annotations):
            for split, examples in splits.items():
                for entry in getattr(file, split):
                    with or_skip():
                        paths = tuple(self.root / name for name in entry.image_path)
                        examples.append(make_example(entry.id, paths, [entry.report]))
        return check_splits(splits, self.annotations)
