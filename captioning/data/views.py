"""Views of photographs: other qualities, sizes, crops and colours of the same picture.

A view changes the upright photograph before a backbone's own preprocessing makes it a square. `NAMED` views are the
same for every photograph; those of `View` are drawn for each of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageEnhance, ImageFilter

KERNELS = ("box", "bilinear", "hamming", "bicubic", "lanczos")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a photograph, in the order of its attributes.

    Attributes:
        crop: shares of the width or height that are cut off: left, top, right, bottom.
        mirror: left and right are exchanged.
        brightness: factor of all colours.
        contrast: factor of the distances from the mean grey.
        blur: radius of a Gaussian, as a share of the shorter side.
        side: the size to which it is resampled, in units of that which the backbone will give it; None: left as it is.
        kernel: of that, by Pillow's name.
        quality: of a JPEG file that it is saved as and read from; None: it is kept as it is.
        subsampling: of the colours in that file, by Pillow's numbers: 0 for 4:4:4, 2 for 4:2:0.
    """

    crop: tuple[float, float, float, float] = (0, 0, 0, 0)
    mirror: bool = False
    brightness: float = 1
    contrast: float = 1
    blur: float = 0
    side: float | None = None
    kernel: str = "bicubic"
    quality: int | None = None
    subsampling: int = 2

    @property
    def settings(self) -> str:
        """All that decides what comes out, as one line of text for a digest."""
        return repr(self)

    def __call__(self, image: Image.Image, size: tuple[int, int], source: str | Path | Image.Image) -> Image.Image:
        """Change an upright RGB image.

        Args:
            image: any size.
            size: width and height that the backbone will give to the photograph.
            source: the file or image that it is from.
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
        if self.side is not None:
            width, height = (max(1, round(self.side * length)) for length in size)
            image = image.resize((width, height), Image.Resampling[self.kernel.upper()])
        if self.quality is not None:
            file = BytesIO()
            image.save(file, "JPEG", quality=self.quality, subsampling=self.subsampling, comment=b"")
            image = Image.open(file, formats=("JPEG",))
            image.load()
        return image


NAMED: Mapping[str, Change | None] = {
    "full": None,
    "png": Change(side=1),
    "jpeg75": Change(side=1, quality=75),
    "jpeg50": Change(side=1, quality=50),
    "blur": Change(blur=0.01),
    "dark": Change(brightness=0.5),
}
"""Ways to see a test split: as it is, made small without loss or as JPEG, blurred, at half the brightness."""
