"""Preprocessing from image files to a backbone's first layer.

B images, H rows and W columns of pixels (H = W = size), 3 colours red, green, blue, and with
padding a fourth channel: 255 on the photograph, 0 in the padding.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioning.data.images import FULL_IMAGE, CropBox, Source, frame_of, load_image
from captioning.data.pixels import FULL_RANGE, to_rgb, to_square
from captioning.data.views import RandomView, Transform

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
Resize = Literal["stretch", "crop", "pad"]
"""Conversion of a photograph to a square, see `ImageTransform`."""
Interpolation = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
"""Resampling filters, by Pillow's names."""
View = Transform | RandomView
"""A change of a photograph before it is made square."""


@dataclass(frozen=True)
class ImageTransform:
    """The preprocessing of one backbone.

    By default the photograph is stretched to a square with antialiasing (D:
    cropping would remove objects that captions name; for the same reason there is no random crop in
    training). `crop` takes the largest square in the middle. `pad` keeps the aspect ratio and
    centres the photograph in a square of the mean colour (D: near 0 after normalisation, like the
    zero padding of convolutions).
    """

    size: int  # side of the square in pixels
    mean: tuple[float, float, float] = IMAGENET_MEAN  # of each colour on the scale 0-1, subtracted
    std: tuple[float, float, float] = IMAGENET_STD  # divided by
    resize: Resize = "stretch"
    interpolation: str = "bilinear"  # as in torchvision's presets for its weights (D)
    pixel_range: tuple[int, int] = (
        FULL_RANGE  # values that become black and white, of 16-bit images alone
    )
    view: View | None = None  # changes the photograph before it is resized

    @property
    def settings(self) -> str:
        """One line of text for a digest; equal lines mean equal tensors."""
        numbers = " ".join(f"{value:.6g}" for value in (*self.mean, *self.std))
        view = "" if self.view is None else f", view {self.view.settings}"
        # Caches of features on disk call it "squash".
        name = "squash" if self.resize == "stretch" else self.resize
        resizing = f"{name} {self.size} {self.interpolation} antialias"
        if self.pixel_range != FULL_RANGE:
            resizing += f", 16-bit range {self.pixel_range}"
        return f"{resizing}, jpeg draft 2, alpha on white, mean std {numbers}{view}"

    def resample(self, epoch: int) -> "ImageTransform":
        return self if self.view is None else replace(self, view=self.view.resample(epoch))

    def read(self, source: Source) -> Tensor:
        """Decode a photograph to an upright square: uint8 `[3, H, W]`, with `pad` `[4, H, W]`.

        EXIF rotation is applied; transparent images are composited over white (D); grey, palette,
        CMYK and 16-bit images are converted; animations are represented by their first frame. Large
        JPEG files are decoded at a reduced resolution, never below twice `size`.
        """
        with load_image(source, 2 * self.size) as image:
            image = to_rgb(image, self.pixel_range)
            if self.view:
                # width and height of the photograph after resizing, inside or around the square
                reference = {
                    "stretch": image.size,
                    "crop": 2 * (min(image.size),),
                    "pad": 2 * (max(image.size),),
                }
                pairs = zip(image.size, reference[self.resize], strict=True)
                width, height = (max(1, round(self.size * side / whole)) for side, whole in pairs)
                image = self.view(image, (width, height), source)
            square = to_square(image, self.size, self.resize, self.interpolation, self.mean)
            return _tensor(square)

    def whole(self, source: Source, longest: int) -> Tensor:
        """The upright photograph, uint8 `[3, H, W]`, no side above `longest`.

        Its aspect ratio is kept.
        """
        with load_image(source, 2 * self.size) as image:
            image = to_rgb(image, self.pixel_range)
            image.thumbnail((longest, longest), Image.Resampling.LANCZOS)
            return _tensor(image)

    def frame(self, source: Source) -> CropBox:
        """The position of the square on the photograph; with `pad` it extends beyond 0 and 1."""
        if self.resize == "stretch":
            return FULL_IMAGE
        with load_image(source, 2 * self.size) as image:
            return frame_of(self.resize, *image.size)

    def normalise(self, images: Tensor) -> Tensor:
        """`[B, 3, H, W]` uint8 to float32, normalised as in the training of the weights."""
        # Python numbers per colour, because tensors would be copied to the device in every step.
        colours = zip(images.float().unbind(1), self.mean, self.std, strict=True)
        return torch.stack(
            [(colour - 255 * mean) / (255 * std) for colour, mean, std in colours], dim=1
        )


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
