"""Reader of TextCaps' files, such as `TextCaps_0.1_train.json`: an entry for each caption.

Layout: `{"data": [{"image_id", "image_name", "caption_str"}, ...]}`; entries of the test set have
no `caption_str`. Source: Sidorov et al., "TextCaps: a Dataset for Image Captioning with Reading
Comprehension", ECCV 2020.
"""

from dataclasses import dataclass

from captioning.config.types import validated_class
from captioning.data.readers.coco import Annotation, CocoFile, CocoSplit, ImageFile
from captioning.data.readers.parsing import ImageId, Text, read_json
from captioning.data.readers.reading import FailFastList, FileName

NAME = "the layout of TextCaps (data=textcaps)"


@dataclass(slots=True)
class _Entry:
    image_id: ImageId
    image_name: FileName
    caption_str: Text | None = None


@dataclass
class _File:
    data: FailFastList[_Entry]


@validated_class
class TextCapsSplit(CocoSplit):
    """One split; a photograph is `root/image_name.jpg`."""

    def _read(self) -> CocoFile[ImageFile]:
        entries = read_json(self.annotations, _File, NAME).data
        names = {entry.image_id: f"{entry.image_name}.jpg" for entry in entries}
        captions = [Annotation(e.image_id, e.caption_str) for e in entries if e.caption_str]
        images = [ImageFile(image, name) for image, name in names.items()]
        return CocoFile(images, captions or None)  # type: ignore[arg-type]
