"""Reader of the JSON files with Karpathy's splits of Flickr8k, Flickr30k and COCO.

Layout: `{"images": [IMAGE, ...]}`, with images
`{"filename", "filepath"?, "cocoid"?, "imgid", "split", "sentences": [{"raw", "tokens"}, ...]}`.
Source of the splits: Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments
for Generating Image Descriptions", 2015.
"""

from dataclasses import dataclass, field
from pathlib import Path

from captioning.config.types import UserPath, validated_class
from captioning.data.example import SPLITS, Example
from captioning.data.readers.parsing import ImageId, at, or_skip, read_json
from captioning.data.readers.reading import (
    FailFastList,
    FileName,
    Folder,
    ReadSplits,
    Sentence,
    SourceFile,
    Split,
    check_splits,
    complete,
    make_example,
    split_called,
)
from captioning.errors import CaptioningError, quoted

NAME = "Karpathy's layout (data=flickr8k, flickr30k or coco)"


@dataclass(slots=True)
class KarpathyImage:
    """An image with its captions."""

    filename: FileName
    sentences: list[Sentence]
    filepath: Folder = ""
    cocoid: ImageId | None = None
    imgid: ImageId | None = None
    split: str | None = None
    group: str = field(default="", init=False)

    def path(self, root: Path) -> Path:
        return root / self.filepath / self.filename

    def example(self, root: Path) -> Example:
        ids = (key for key in (self.cocoid, self.imgid, self.filename) if key is not None)
        return make_example(next(ids), (self.path(root),), self.sentences, group=self.group)


@dataclass
class KarpathyFile:
    """The contents of a file."""

    images: FailFastList[KarpathyImage]


@validated_class
class KarpathyReader:
    """Photographs in a folder, captions and splits in one Karpathy JSON file.

    An image's id is its `cocoid`, or else its `imgid`, or else its file name. The words are the
    file's `tokens`, or else `split_words(raw)`. Sentences without words are left out.

    Args:
        root: folder of the photographs; a photograph is `root/filepath/filename`, or
            `root/filename` without a `filepath`.
        annotations: the JSON file.
        restval: split for the images marked `restval` (the 30,504 validation images of COCO that
            Karpathy's splits do not use); None leaves them out.
    """

    root: UserPath
    annotations: SourceFile
    restval: Split | None = "train"

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`, in the file's order; without splits all are `train`, of
        which the others are shares, see `complete`.
        """
        splits: ReadSplits = {split: [] for split in SPLITS}
        images = self._images()
        named = any(image.split for image in images)
        with at(self.annotations):
            for position, image in enumerate(images):
                with or_skip():
                    split = split_called(image.split) if named else "train"
                    if split is None:
                        raise CaptioningError(
                            f"images[{position}].split={quoted(image.split)}: must be train, val, "
                            "test or restval"
                        )
                    if split := self.restval if image.split == "restval" else split:
                        splits[split].append(image.example(self.root))
        return check_splits(complete(splits, self.annotations), self.annotations)

    def image_paths(self) -> list[Path]:
        """The paths of all photographs in the file, including those that are not on disk."""
        return [image.path(self.root) for image in self._images()]

    def _images(self) -> list[KarpathyImage]:
        return read_json(self.annotations, KarpathyFile, NAME).images
