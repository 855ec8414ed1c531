"""Image files of every kind, opened by Pillow and turned upright."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import ExifTags, Image, UnidentifiedImageError

from captioning.errors import CaptioningError, quoted
from captioning.files import FORMATS, open_bounded

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
Source = str | Path | Image.Image
"""A file, or an image in memory."""


@contextmanager
def load_image(source: Source, side: int) -> Iterator[Image.Image]:
    """Decode an image upright; errors inside the context name its file.

    Large JPEG files are decoded at a reduced resolution, never below `side`.
    """
    with open_image(source) as image:
        if image is not source:
            image.draft(None, (side, side))
        image.load()  # here, so that only the EXIF data can fail below
        upright = turn(image)
        yield image if upright is None else image.transpose(upright)


@contextmanager
def open_image(source: Source) -> Iterator[Image.Image]:
    """Open an image, not yet decoded; errors inside the context name its file."""
    try:
        if isinstance(source, Image.Image):
            yield source
            return
        with open_bounded(Path(source)) as file, Image.open(file, formats=FORMATS) as image:
            yield image
    except Exception as error:  # Pillow's decoders raise almost any exception on a broken file
        reason = f"{type(error).__name__}: {quoted(error)}"
        if isinstance(error, UnidentifiedImageError):
            reason = f"it is not a complete {', '.join(FORMATS)}"
        raise CaptioningError(f"cannot read the image {quoted(source)}: {reason}") from error


def turn(image: Image.Image) -> Image.Transpose | None:
    """The transposition that turns the image upright, by its EXIF data."""
    # Pillow's `exif_transpose` also rewrites the remaining EXIF data, and fails if that is damaged.
    try:
        return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF data raise any exception
        return None
