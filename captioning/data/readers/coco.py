"""Reader of COCO's own caption files: `captions_train2014.json`, `captions_val2014.json`, and those of other years.

Layout: `{"images": [{"id", "file_name"}, ...], "annotations": [{"image_id", "caption"}, ...]}`.
Source: Chen et al., "Microsoft COCO Captions: Data Collection and Evaluation Server", 2015. The captions of its test
images are not public, so a split for tests is cut from the others.
"""

from pathlib import Path

from captioning.config.types import validated
from captioning.data.example import Example
from captioning.data.readers.schema import CocoFile, CocoImage, read_json
from captioning.data.readers.splits import SPLITS, OfEachSplit, check_splits, make_example, make_reference
from captioning.data.readers.subset import Share, Subset

NAME = "the layout of COCO's captions_*.json (data=coco_official)"


class CocoSplit:
    """One split: a folder of photographs, a file of captions, and which of its images belong to the split.

    The words are `split_words(caption)`; a caption without words is left out.

    Args:
        root: folder of the photographs; a photograph is `root/file_name`.
        annotations: the JSON file.
        part: a share of its images, or a file with one image id per line (see `Subset`).
    """

    @validated
    def __init__(self, root: str | Path, annotations: str | Path, part: str | Path | Share = (0, 1)) -> None:
        self.root = Path(root).expanduser()
        self.annotations = Path(annotations).expanduser()
        self.subset = Subset(part)

    def __call__(self) -> list[Example]:
        """Read the file."""
        file = read_json(self.annotations, CocoFile[CocoImage], NAME)
        captions = file.captions(self.annotations)
        paths = {image.id: self.root / image.file_name for image in file.images}
        return [
            make_example(each, paths[each], map(make_reference, captions[each]), f"{self.annotations}: image {each}")
            for each in self.subset.choose(list(paths), self.annotations)
        ]


class CocoReader:
    """The three splits, each from its own file or from a part of one."""

    @validated
    def __init__(self, splits: OfEachSplit[CocoSplit]) -> None:
        self.splits = {split: splits[split] for split in SPLITS}

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`; an image's id is COCO's."""
        splits: dict[str, list[Example]] = {name: split() for name, split in self.splits.items()}
        files = dict.fromkeys(str(split.annotations) for split in self.splits.values())
        check_splits(splits, ", ".join(files))
        return splits
