"""Reader of the JSON in which Karpathy's splits of Flickr8k, Flickr30k and COCO are published.

Layout: `{"images": [{"filename", "filepath"?, "cocoid"?, "imgid", "split", "sentences": [{"raw", "tokens"}, ...]}]}`.
Source of the splits: Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments for Generating Image Descriptions", 2015.
"""

from collections.abc import Iterator
from pathlib import Path

from captioning.config.types import validated
from captioning.data.example import Example, Reference
from captioning.data.readers.schema import (
    MAX_CHARACTERS,
    KarpathyFile,
    KarpathyImage,
    Sentence,
    SplitImage,
    T,
    read_json,
)
from captioning.data.readers.splits import SPLITS, Split, check_splits, make_example, make_reference
from captioning.errors import CaptioningError

NAME = "Karpathy's layout (data=flickr8k, flickr30k or coco)"


class KarpathyReader:
    """Photographs in a folder, captions and splits in one Karpathy JSON file.

    An image's id is its `cocoid`, or else its `imgid`, or else its file name. The words are the file's `tokens`, or
    `split_words(raw)` where it has none. A sentence without words is left out.

    Args:
        root: folder of the photographs; a photograph is `root/filepath/filename`, or `root/filename` where the file
            names no `filepath`.
        annotations: the JSON file.
        restval: the split that images marked `restval` join (the 30,504 validation images of COCO that Karpathy left
            over); None leaves them out.
    """

    @validated
    def __init__(self, root: str | Path, annotations: str | Path, restval: Split | None = "train") -> None:
        self.root = Path(root).expanduser()
        self.annotations = Path(annotations).expanduser()
        self.restval = restval

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`, in the file's order."""
        splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
        for place, image in self._images(SplitImage):
            split = self.restval if image.split == "restval" else image.split
            if split is not None:
                splits[split].append(self._example(image, place))
        check_splits(splits, self.annotations)
        return splits

    def examples(self) -> list[Example]:
        """All images of the file, in its order, whatever their split."""
        return [self._example(image, place) for place, image in self._images(KarpathyImage)]

    def photographs(self) -> list[Path]:
        """The paths of all photographs that the file names, whether they are on disk or not."""
        return [self._path(image) for _, image in self._images(KarpathyImage)]

    def _images(self, layout: type[T]) -> Iterator[tuple[str, T]]:
        images = read_json(self.annotations, KarpathyFile[layout], NAME).images  # type: ignore[valid-type]
        return ((f"{self.annotations}: images[{position}]", image) for position, image in enumerate(images))

    def _example(self, image: KarpathyImage, place: str) -> Example:
        ids = (image.cocoid, image.imgid, image.filename)
        image_id = next(each for each in ids if each is not None)
        references = [_reference(sentence, place) for sentence in image.sentences]
        return make_example(image_id, self._path(image), references, place)

    def _path(self, image: KarpathyImage) -> Path:
        return self.root / image.filepath / image.filename


def _reference(sentence: Sentence, place: str) -> Reference | None:
    if sentence.raw is not None:
        return make_reference(sentence.raw, sentence.tokens)
    text = None if sentence.tokens is None else " ".join(sentence.tokens)
    if text is None or len(text) > MAX_CHARACTERS:
        raise CaptioningError(f"{place}: sentences need raw or tokens of up to {MAX_CHARACTERS} characters")
    return make_reference(text, sentence.tokens)
