"""Pixels of photographs as networks see them: upright, in red, green and blue, square.

`experiments/onnx` copies this module beside its graphs, so that it imports NumPy and Pillow alone.
"""

from collections.abc import Sequence

import numpy as np
from PIL import ExifTags, Image, ImageOps

FULL_RANGE = (0, 2**16 - 1)
"""Values of black and white of a 16-bit image."""
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transpositions that turn a photograph upright, by EXIF orientation; rotations are
counterclockwise.
"""


def turn(image: Image.Image) -> Image.Transpose | None:
    """The transposition that turns the image upright, by its EXIF data."""
    # Pillow's `exif_transpose` also rewrites the remaining EXIF data, and fails if that is damaged.
    try:
        return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF data raise any exception
        return None


def upright(image: Image.Image) -> Image.Image:
    """The decoded image, turned as its EXIF data say."""
    image.load()
    by = turn(image)
    return image if by is None else image.transpose(by)


def to_rgb(image: Image.Image, pixel_range: tuple[int, int] = FULL_RANGE) -> Image.Image:
    """An image of any kind in red, green and blue, 8 bits each, transparent places white."""
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow's own conversion would clip at 255
        black = pixel_range[0]
        grey = (np.asarray(image, np.int64) - black) * 255 // (pixel_range[1] - black)
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range; save it with 8 or 16 bits")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def to_square(
    image: Image.Image, size: int, resize: str, interpolation: str, mean: Sequence[float]
) -> Image.Image:
    """Resize an RGB image to a square; `pad` adds a channel that is 0 in the padding.

    Args:
        image: of any size.
        size: side of the square.
        resize: `stretch`, `crop` or `pad`, as of a backbone.
        interpolation: name of a resampling filter of Pillow.
        mean: colour of the padding, on the scale 0-1.
    """
    square, sampling = (size, size), Image.Resampling[interpolation.upper()]
    if resize == "crop":
        return ImageOps.fit(image, square, sampling)
    if resize == "pad":
        beside = (*(round(255 * colour) for colour in mean), 0)
        return ImageOps.pad(image.convert("RGBA"), square, sampling, beside)
    return image.resize(square, sampling)
