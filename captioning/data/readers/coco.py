"""Reader of COCO's caption files, such as `captions_train2014.json` and `captions_val2014.json`.

Layout: `{"images": [{"id", "file_name"}, ...], "annotations": [{"image_id", "caption"}, ...]}`.
Source: Chen et al., "Microsoft COCO Captions: Data Collection and Evaluation Server", 2015.
Captions of its test images are not public, so the test split is cut from the others.
"""

import logging
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from captioning.config.types import UserPath, validated_class
from captioning.data.columns import RowWriter
from captioning.data.readers.ids import captions_by_image
from captioning.data.readers.options import options
from captioning.data.readers.parsing import ImageId, Text, at, read_json
from captioning.data.readers.reading import (
    FailFastList,
    FileName,
    OfEachSplit,
    Part,
    ReadSplits,
    SourceFile,
    check_splits,
    choose_examples,
)

log = logging.getLogger(__name__)
NAME = "the layout of COCO's captions_*.json (data=coco_official)"


@dataclass(slots=True)
class CocoImage:
    """An image, whose file scores do not need."""

    id: ImageId
    file_name: Any = None
    group: str = field(default="", init=False)


@dataclass(slots=True)
class ImageFile(CocoImage):
    """An image with its file."""

    file_name: FileName


AnyImage = TypeVar("AnyImage", bound=CocoImage)


@dataclass(slots=True)
class Annotation:
    """A caption of an image; VizWiz marks those that say only that nothing can be seen."""

    image_id: ImageId
    caption: Text
    is_rejected: bool = False
    is_precanned: bool = False


@dataclass
class CocoFile(Generic[AnyImage]):
    """The contents of a file."""

    images: FailFastList[AnyImage]
    # None, as FailFast has no hash for a union: absent in the test set of a challenge
    annotations: FailFastList[Annotation] = None  # type: ignore[assignment]

    def captions(self, marked: bool = False) -> dict[ImageId, list[str]]:
        """The captions of each image, in the order of the images. Captions that are marked are left
        out unless `marked`, and so are images without others, as in VizWiz's own evaluation.
        """
        annotations = self.annotations or []
        captions = ((entry.image_id, entry.caption) for entry in annotations)
        ids = (image.id for image in self.images)
        by_image = captions_by_image(ids, captions, "annotations")
        if marked:
            return by_image
        left_out = [entry for entry in annotations if entry.is_rejected or entry.is_precanned]
        for entry in left_out:
            if entry.image_id in by_image:  # else it is among the skipped
                by_image[entry.image_id].remove(entry.caption)
        gone = {entry.image_id for entry in left_out if not by_image.get(entry.image_id, True)}
        if left_out:
            log.info(
                "left out: %d captions marked is_rejected or is_precanned, %d images without other",
                len(left_out),
                len(gone),
            )
        return {image: texts for image, texts in by_image.items() if image not in gone}


@validated_class
class CocoSplit:
    """One split: a folder of photographs, a file of captions, and the part of it that is used.

    The words are `split_words(caption)`; captions without words are left out.

    Args:
        root: folder of the photographs; a photograph is `root/file_name`.
        annotations: the JSON file.
        part: a share of the images, or a file with one image id per line.
        marked: also captions that are marked `is_rejected` or `is_precanned`.
    """

    root: UserPath
    annotations: SourceFile
    part: Part = (0, 1)
    marked: bool = False

    def __call__(self) -> Any:
        """Read the file."""
        file = self._read()
        with at(self.annotations):
            captions = file.captions(self.marked)
        writer = RowWriter(self.root)
        images = {image.id: image for image in file.images}
        for image_id, texts in captions.items():
            image = images[image_id]
            writer.add(image_id, [image.file_name], texts, image.group)
        return choose_examples(
            self.part, writer.finish(), self.annotations, file.annotations is None
        )

    def _read(self) -> CocoFile[ImageFile]:
        return read_json(self.annotations, CocoFile[ImageFile], NAME)


@validated_class
class CocoReader:
    """The three splits, each from a file or a part of a file.

    Files of splits that an evaluation does not need may be absent.

    Args:
        splits: the three.
        shared_ids: they are of several data sets, whose images may have the same ids.
    """

    splits: OfEachSplit[CocoSplit]
    shared_ids: bool = False

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`; an image's id is COCO's."""
        splits: ReadSplits = {
            name: split() if name in options().needed or split.annotations.is_file() else []
            for name, split in self.splits.items()
        }
        files = {split.annotations: 0 for split in self.splits.values()}
        return check_splits(splits, *files, shared_ids=self.shared_ids)
