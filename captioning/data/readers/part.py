"""Which images of a file make a split, where the file does not say."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from captioning.config.types import Probability
from captioning.data.readers.files import read_lines
from captioning.errors import CaptioningError

ImageId = int | str
Ends = tuple[Probability, Probability]


class Part:
    """A share of a file's images, or those that a list names.

    Args:
        value: the two ends of a share, numbers from 0 to 1; or the list, a text file with one image per line, its id
            or, where photographs have no ids, its file name. For shares the images are put into an order of chance
            that depends on their ids alone: shares side by side, such as [0, 0.8] and [0.8, 1], have no image in
            common and leave none out.

    Raises:
        CaptioningError: neither of the two.
    """

    def __init__(self, value: str | Path | Sequence[float]) -> None:
        self.value: Path | tuple[float, float]
        if isinstance(value, str | Path):
            self.value = Path(value).expanduser()
            return
        pair = isinstance(value, Sequence) and len(value) == 2
        if not pair or not all(isinstance(end, int | float) for end in value):
            raise CaptioningError(
                f"{value!s:.200} is no share of images; give its two ends, such as [0, 0.5], or a file with one image "
                "per line"
            )
        start, end = value
        if not 0 <= start < end <= 1:
            raise CaptioningError(f"{value} is no share of images; its ends are numbers from 0 to 1, the smaller first")
        self.value = start, end

    def choose(self, images: Sequence[ImageId], source: Path) -> list[ImageId]:
        """The chosen of `images`, all that the file `source` holds: a share in their order, a list in its own.

        Raises:
            CaptioningError: none is chosen, or the list cannot be read, names an image twice or one that `source` has
                not.
        """
        if isinstance(self.value, Path):
            return _listed(self.value, images, source)
        return _shared(*self.value, images, source)


def _shared(start: float, end: float, images: Sequence[ImageId], source: Path) -> list[ImageId]:
    ordered = sorted(images, key=lambda image: sha256(str(image).encode()).digest())
    chosen = set(ordered[round(start * len(images)) : round(end * len(images))])
    if not chosen:
        raise CaptioningError(
            f"the share [{start}, {end}] of the {len(images)} images of {source} is no image; widen it"
        )
    return [image for image in images if image in chosen]


def _listed(path: Path, images: Sequence[ImageId], source: Path) -> list[ImageId]:
    known = {str(image): image for image in images}
    chosen: dict[ImageId, str] = {}
    for place, line in read_lines(path):
        name = line.strip()
        if name not in known:
            raise CaptioningError(f"{place}: {name:.200} is not among the {len(images)} images of {source}")
        first = chosen.setdefault(known[name], place)
        if first is not place:
            raise CaptioningError(f"{place}: {name:.200} is listed twice, first in {first}")
    if not chosen:
        raise CaptioningError(f"{path} lists no images; each split needs some")
    return list(chosen)
