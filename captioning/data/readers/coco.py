"""Reader of COCO's own caption files: `captions_train2014.json`, `captions_val2014.json`, and those of other years.

Layout: `{"images": [{"id", "file_name"}, ...], "annotations": [{"image_id", "caption"}, ...]}`.
Source: Chen et al., "Microsoft COCO Captions: Data Collection and Evaluation Server", 2015. The captions of its test
images are not public, so a split for tests is cut from the others.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioning.data.example import Example
from captioning.data.readers.files import read_json
from captioning.data.readers.part import Ends, Part
from captioning.data.readers.splits import (
    check_id,
    check_splits,
    entry,
    make_example,
    make_reference,
    photograph_path,
    three,
)
from captioning.errors import CaptioningError


class CocoSplit:
    """One split: a folder of photographs, a file of captions, and which of its images belong to the split.

    Args:
        root: folder of the photographs; a photograph is `root/file_name`.
        annotations: the JSON file.
        part: a share of its images, or a file with one image id per line (see `Part`).
    """

    def __init__(self, root: str | Path, annotations: str | Path, part: str | Path | Ends = (0, 1)) -> None:
        self.root = Path(root).expanduser()
        self.annotations = Path(annotations).expanduser()
        self.part = Part(part)

    def __call__(self) -> list[Example]:
        """Read the file. The words are `split_words(caption)`; a caption without words is left out.

        Raises:
            CaptioningError: JSON missing or of another kind, an image id that occurs twice, a caption of an image
                that is not there, a part without images, an image without captions, a path that leaves the root.
        """
        content = self._content()
        images = self._images(content["images"])
        captions = self._captions(content["annotations"], images)
        chosen = self.part.choose(list(images), self.annotations)
        return [
            make_example(image_id, *images[image_id], (make_reference(*caption) for caption in captions[image_id]))
            for image_id in chosen
        ]

    def _content(self) -> dict[str, list[Any]]:
        content = read_json(self.annotations)
        missing = [
            name
            for name in ("images", "annotations")
            if not isinstance(content, dict) or not isinstance(content.get(name), list)
        ]
        if missing == ["annotations"] and any(
            isinstance(image, dict) and "sentences" in image for image in content["images"]
        ):
            raise CaptioningError(
                f"{self.annotations} is of the Karpathy layout (captions within images), not COCO's own; "
                "read it with data=coco, data=flickr8k or data=flickr30k"
            )
        if missing:
            raise CaptioningError(
                f"{self.annotations} has no list {' and no list '.join(missing)}; it must be laid out as COCO's "
                "captions_*.json (the captions of COCO's test images are not public)"
            )
        return content

    def _images(self, entries: list[Any]) -> dict[int | str, tuple[Path, str]]:
        """The path of every image, and the place of its entry."""
        images: dict[int | str, tuple[Path, str]] = {}
        for position, image in enumerate(entries):
            place = f"{self.annotations}: images[{position}]"
            with entry(place, "COCO layout (id, file_name)"):
                check_id(image["id"], place)
                found = photograph_path(self.root, image["file_name"], place), place
                first = images.setdefault(image["id"], found)
            if first is not found:
                raise CaptioningError(f"{place}: the image id {image['id']!s:.200} occurs twice, first in {first[1]}")
        return images

    def _captions(
        self, entries: list[Any], images: dict[int | str, tuple[Path, str]]
    ) -> dict[int | str, list[tuple[Any, str]]]:
        """The captions of every image, each with its place."""
        captions: dict[int | str, list[tuple[Any, str]]] = defaultdict(list)
        for position, annotation in enumerate(entries):
            place = f"{self.annotations}: annotations[{position}]"
            with entry(place, "layout of COCO's captions_*.json (image_id, caption)"):
                image_id, text = annotation["image_id"], annotation["caption"]
                if image_id not in images:
                    raise CaptioningError(f"{place}: there is no image {image_id!r:.200} for the caption {text!r:.60}")
                captions[image_id].append((text, place))
        return captions


class CocoReader:
    """The three splits, each from its own file or from a part of one.

    Args:
        splits: `train`, `val` and `test`.
    """

    def __init__(self, splits: Mapping[str, CocoSplit]) -> None:
        self.splits = three(splits)

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`; an image's id is COCO's.

        Raises:
            CaptioningError: as for `CocoSplit`, and for an image id or a photograph that occurs twice.
        """
        splits = {name: split() for name, split in self.splits.items()}
        files = dict.fromkeys(str(split.annotations) for split in self.splits.values())
        check_splits(splits, ", ".join(files))
        return splits
