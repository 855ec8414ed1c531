"""Reader of LEVIR-CC: changes between two satellite images.

Layout: Karpathy's, whose image `root/filepath/filename` is `root/filepath/A/filename` before the
change and `root/filepath/B/filename` after it.
Source: Liu et al., "Remote Sensing Image Change Captioning With Dual-Branch Transformers", 2022.
"""

from dataclasses import replace

from captioning.config.types import UserPath, validated_class
from captioning.data.example import Example
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import ReadSplits, SourceFile


@validated_class
class LevirReader:
    """Pairs of images, their captions and splits, in the file's order.

    Args:
        root: folder of the images.
        annotations: the JSON file.
    """

    root: UserPath
    annotations: SourceFile

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`."""
        splits = KarpathyReader(self.root, self.annotations)()
        return {split: list(map(_before_and_after, pairs)) for split, pairs in splits.items()}


def _before_and_after(pair: Example) -> Example:
    before, after = (pair.path.parent / side / pair.path.name for side in "AB")
    return replace(pair, path=before, further=(after,))
