"""Reader of the JSON in which Karpathy's splits of Flickr8k, Flickr30k and COCO are published.

Layout: `{"images": [{"filename", "filepath"?, "cocoid"?, "imgid", "split", "sentences": [{"raw", "tokens"}, ...]}]}`.
Source of the splits: Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments for Generating Image Descriptions", 2015.
"""

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

from captioning.data.example import Example, Reference
from captioning.data.readers.files import read_json
from captioning.data.readers.splits import (
    SPLITS,
    check_splits,
    entry,
    make_example,
    make_reference,
    photograph_path,
)
from captioning.errors import CaptioningError

Split = Literal["train", "val", "test"]
T = TypeVar("T")
LAYOUT = "Karpathy layout (filename, split, sentences)"


class KarpathyReader:
    """Photographs in a folder, captions and splits in one Karpathy JSON file.

    Args:
        root: folder of the photographs; a photograph is `root/filepath/filename`, or `root/filename` where the file
            names no `filepath`.
        annotations: the JSON file.
        restval: the split that images marked `restval` join (the 30,504 validation images of COCO that Karpathy left
            over); None leaves them out.
    """

    def __init__(self, root: str | Path, annotations: str | Path, restval: Split | None = "train") -> None:
        self.root = Path(root).expanduser()
        self.annotations = Path(annotations).expanduser()
        if restval is not None and restval not in SPLITS:
            raise CaptioningError(f"restval={restval} is no split; allowed: {', '.join(SPLITS)} or null")
        self.restval = restval

    def __call__(self) -> dict[str, list[Example]]:
        """Read the file: `train`, `val` and `test`, in the file's order.

        The words are the file's `tokens`, or `split_words(raw)` where it has none. A sentence without words is left
        out.

        Raises:
            CaptioningError: JSON missing or of another kind, a split without images, an image without captions, a
                path that leaves the root, an id or a photograph that occurs twice.
        """
        splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
        for position, image in enumerate(self._images()):
            place = f"{self.annotations}: images[{position}]"
            with entry(place, LAYOUT):
                split = self._split(image["split"], place)
                if split is not None:
                    splits[split].append(self._example(image, place))
        check_splits(splits, self.annotations)
        return splits

    def examples(self) -> list[Example]:
        """All images of the file, in its order, whatever their split.

        Raises:
            CaptioningError: JSON missing or of another kind, an image without captions, a path that leaves the root.
        """
        return self._each(self._example)

    def photographs(self) -> list[Path]:
        """The paths of all photographs that the file names, of every split, whether they are on disk or not.

        Raises:
            CaptioningError: JSON missing or of another kind, a path that leaves the root.
        """
        return self._each(self._path)

    def _each(self, read: Callable[[Any, str], T]) -> list[T]:
        """Read every image; `read` takes the entry and its place in the file."""
        found = []
        for position, image in enumerate(self._images()):
            place = f"{self.annotations}: images[{position}]"
            with entry(place, LAYOUT):
                found.append(read(image, place))
        return found

    def _images(self) -> list[Any]:
        content = read_json(self.annotations)
        if isinstance(content, dict) and "annotations" in content:
            raise CaptioningError(
                f"{self.annotations} is COCO's own layout (images and annotations apart), not Karpathy's; "
                "read it with data=coco_official"
            )
        images = content.get("images") if isinstance(content, dict) else None
        if not isinstance(images, list):
            raise CaptioningError(
                f'{self.annotations} has no list "images"; data.reader.annotations must be a Karpathy JSON'
            )
        return images

    def _split(self, name: Any, place: str) -> str | None:
        if name == "restval":
            return self.restval
        if name not in SPLITS:
            raise CaptioningError(f"{place}: unknown split {name!r:.60}; allowed: {', '.join(SPLITS)} and restval")
        return str(name)

    def _example(self, image: dict[str, Any], place: str) -> Example:
        path = self._path(image, place)
        references = [_reference(sentence, f"{place}.sentences[{i}]") for i, sentence in enumerate(image["sentences"])]
        return make_example(image.get("cocoid", image.get("imgid", image["filename"])), path, place, references)

    def _path(self, image: dict[str, Any], place: str) -> Path:
        return photograph_path(self.root, str(PurePath(image.get("filepath", ""), image["filename"])), place)


def _reference(sentence: dict[str, Any], place: str) -> Reference | None:
    if "tokens" not in sentence:
        return make_reference(sentence["raw"], place)
    words = sentence["tokens"]
    if not isinstance(words, list):
        raise TypeError("tokens must be a list of words")
    return make_reference(sentence.get("raw", " ".join(words)), place, words)
