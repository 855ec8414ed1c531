"""Views of photographs: other qualities, sizes, crops and colours of the same picture.

A view changes the upright photograph before the backbone's preprocessing makes it square. `NAMED`
views are the same for all photographs; those of `RandomChange` are drawn per photograph.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter
from pydantic import AfterValidator, Strict

from captioning.config.types import Probability, Seed, Share, between, rising, validated_class
from captioning.data.images import Source

T = TypeVar("T")
Ends = Annotated[tuple[T, T], Strict(False), AfterValidator(rising)]
KERNELS = ("box", "bilinear", "hamming", "bicubic", "lanczos")
SUBSAMPLINGS = (0, 2)
OFTEN = 2 / 3
"""Share of drawn views that are resampled; the same share is saved as JPEG."""


@dataclass(frozen=True)
class Transform:
    """One change of a photograph, in the order of its attributes."""

    # shares to cut off: left, top, right, bottom
    crop: tuple[float, float, float, float] = (0, 0, 0, 0)
    mirror: bool = False  # exchange left and right
    brightness: float = 1  # factor of all colours
    contrast: float = 1  # factor of the distances from the mean grey
    blur: float = 0  # radius of a Gaussian, as a share of the shorter side
    # size to resample to, in units of the size that the backbone will use
    side: float | None = None
    kernel: str = "bicubic"  # resampling filter, by Pillow's name
    quality: int | None = None  # of a JPEG file to save and reload, on Pillow's scale
    # Subsampling of colours in that file, by Pillow's numbers: 0 for 4:4:4, 2 for 4:2:0.
    subsampling: int = 2

    @property
    def settings(self) -> str:
        return repr(self)

    def resample(self, epoch: int) -> "Transform":
        return self

    def __call__(self, image: Image.Image, size: tuple[int, int], source: Source) -> Image.Image:
        """Transform an upright RGB `image`.

        The backbone will resize it to `size` (width, height).
        """
        if any(self.crop):
            (width, height), (left, top, right, bottom) = image.size, self.crop
            edges = left * width, top * height, (1 - right) * width, (1 - bottom) * height
            image = image.crop(tuple(map(round, edges)))  # type: ignore[arg-type]
        if self.mirror:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self.brightness != 1:
            image = ImageEnhance.Brightness(image).enhance(self.brightness)
        if self.contrast != 1:
            image = ImageEnhance.Contrast(image).enhance(self.contrast)
        if self.blur:
            image = image.filter(ImageFilter.GaussianBlur(self.blur * min(image.size)))
        if self.side:
            width, height = (max(1, round(self.side * length)) for length in size)
            image = image.resize((width, height), Image.Resampling[self.kernel.upper()])
        if self.quality:
            file = BytesIO()
            image.save(
                file, "JPEG", quality=self.quality, subsampling=self.subsampling, comment=b""
            )
            image = Image.open(file, formats=("JPEG",))
            image.load()
        return image


NAMED: Mapping[str, Transform | None] = {
    "full": None,
    "png": Transform(side=1),
    "jpeg75": Transform(side=1, quality=75),
    "jpeg50": Transform(side=1, quality=50),
    "blur": Transform(blur=0.01),
    "dark": Transform(brightness=0.5),
}
"""Views of a test split: unchanged, resized losslessly or as JPEG, blurred, at half the brightness.
"""


@validated_class
class RandomChange:
    """Ranges from which a change is drawn for each photograph.

    Two of three views are resampled to an intermediate size (`side`, in units of the size that the
    backbone will use) with any of `KERNELS`; two of three are saved as JPEG, half of these with
    colours at half the resolution. None in place of a range: none of the views. The seed is
    independent of the run's, so that all runs share the features.
    """

    quality: Ends[Annotated[int, between(1, 100)]] | None = (40, 95)
    side: Ends[Annotated[float, between(0.05, 8)]] | None = (0.6, 1.6)
    crop: Annotated[float, between(0, 0.25)] = 0.1  # largest share to cut off at each edge
    brightness: Share = 0.2  # b of a factor from 1 - b to 1 + b
    contrast: Share = 0.2  # likewise
    mirror: Probability = 0.5
    seed: Seed = 0

    def view(self, number: int) -> "RandomView":
        """View `number`, counted from 1."""
        return RandomView(self, number)

    def change(self, *key: int) -> Transform:
        """The change drawn for `key`."""
        random = np.random.default_rng((self.seed, *key))
        # always draw every number, so that no setting affects the draws of another
        crop = random.uniform(0, self.crop, 4).tolist()
        mirror, resampled, saved = (random.random(3) < (self.mirror, OFTEN, OFTEN)).tolist()
        brightness, contrast, size, strength = random.random(4).tolist()
        side = quality = None
        if resampled and self.side:
            low, high = map(math.log, self.side)
            side = math.exp(low + size * (high - low))
        if saved and self.quality:
            worst, best = self.quality
            quality = worst + int(strength * (best - worst + 1))
        return Transform(
            crop=tuple(crop),
            mirror=mirror,
            brightness=1 + self.brightness * (2 * brightness - 1),
            contrast=1 + self.contrast * (2 * contrast - 1),
            side=side,
            kernel=KERNELS[random.integers(len(KERNELS))],
            quality=quality,
            subsampling=SUBSAMPLINGS[random.integers(len(SUBSAMPLINGS))],
        )


@dataclass(frozen=True)
class RandomView:
    """A change for each photograph, drawn by its file name."""

    changes: RandomChange
    number: int

    @property
    def settings(self) -> str:
        changes = ", ".join(f"{name} {value}" for name, value in vars(self.changes).items())
        return f"drawn {self.number} of {changes}"

    def resample(self, epoch: int) -> "RandomView":
        """Another draw for each epoch but the first."""
        return replace(self, number=self.number + (epoch << 16))  # above the numbers of all views

    def __call__(self, image: Image.Image, size: tuple[int, int], source: Source) -> Image.Image:
        """Like `Transform`; an image in memory, which has no name, is identified by its pixels."""
        # By name alone, so that photographs and the cached features of their views may move to
        # another folder
        if isinstance(source, Image.Image):
            name = source.tobytes()
        else:
            name = Path(source).name.encode(errors="surrogateescape")
        image_number = int.from_bytes(hashlib.sha256(name).digest()[:16])
        return self.changes.change(self.number, image_number)(image, size, source)
