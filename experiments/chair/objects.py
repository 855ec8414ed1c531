"""Reader of COCO's annotated objects, for scores of hallucination.

Layout, as of `instances_val2014.json`, with outlines and more that are not read:
`{"images": [{"id"}, ...], "annotations": [OBJECT, ...], "categories": [{"id", "name"}, ...]}`,
with objects `{"image_id", "category_id"}`.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from captioning.config.explain import explain
from captioning.data.readers.coco import CocoImage
from captioning.data.readers.ids import captions_by_image
from captioning.data.readers.parsing import ImageId, Text, at, read_json
from captioning.data.readers.reading import FailFastList
from captioning.errors import CaptioningError

NAME = "COCO's annotated objects, instances_*.json"


@dataclass(slots=True)
class _Object:
    image_id: ImageId
    category_id: int


@dataclass
class _Category:
    id: int
    name: Text


@dataclass
class _Objects:
    images: FailFastList[CocoImage]
    annotations: FailFastList[_Object]
    categories: FailFastList[_Category]


def read_objects(path: Path) -> dict[ImageId, set[str]]:
    """Read the names of the categories of the objects in each image."""
    try:
        file = read_json(path, _Objects, NAME)
    except ValidationError as error:
        raise CaptioningError(explain(error)) from error
    names = {category.id: category.name for category in file.categories}
    with at(path):
        for position, entry in enumerate(file.annotations):
            if entry.category_id not in names:
                raise CaptioningError(f"annotations[{position}] is of no category in the file")
        objects = ((entry.image_id, names[entry.category_id]) for entry in file.annotations)
        known = captions_by_image((image.id for image in file.images), objects, "annotations")
        return {image: set(categories) for image, categories in known.items()}
