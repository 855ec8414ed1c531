"""Which images of a file make a split, where the file does not say."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Strict

from captioning.config.types import Probability, validated
from captioning.data.readers.schema import ImageId, read_lines
from captioning.errors import CaptioningError


def _rising(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] >= ends[1]:
        raise ValueError("must be two numbers from 0 to 1, the smaller first")
    return ends


Share = Annotated[tuple[Probability, Probability], Strict(False), AfterValidator(_rising)]
"""The two ends of a share of images, such as [0, 0.8]."""


class Subset:
    """A share of a file's images, or those that a list names.

    Args:
        value: a share; or the list, a text file with one image per line, its id or, where photographs have no ids, its
            file name. For shares the images are put into an order of chance that depends on their ids alone: adjacent
            shares, such as [0, 0.8] and [0.8, 1], have no image in common and leave none out.
    """

    @validated
    def __init__(self, value: str | Path | Share) -> None:
        self.value = value if isinstance(value, tuple) else Path(value).expanduser()

    def choose(self, images: Sequence[ImageId], source: Path) -> list[ImageId]:
        """The chosen of `images`, all that the file `source` holds: a share in their order, a list in its own."""
        if isinstance(self.value, Path):
            known = {str(image): image for image in images}
            lines = [(place, line.strip()) for place, line in read_lines(self.value)]
            for place, name in lines:
                if name not in known:
                    raise CaptioningError(f"{place}: {name:.200} is not among the {len(images)} images of {source}")
            return [known[name] for _, name in lines]
        start, end = (round(each * len(images)) for each in self.value)
        chosen = set(sorted(images, key=lambda image: sha256(str(image).encode()).digest())[start:end])
        return [image for image in images if image in chosen]
