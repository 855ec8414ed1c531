"""Images of every kind: opened by Pillow, turned upright, and the square that a network sees."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from captioning.data.pixels import upright
from captioning.data.rows import open_source
from captioning.errors import CaptioningError, quoted
from captioning.files import FORMATS

MOST_BANDS = 4
"""Of an image: colours, and a mask or a further one."""
Source = str | Path | Image.Image
"""A file, a row (`captioning.data.rows`), or an image in memory."""
CropBox = tuple[float, float, float, float]
"""Left, top, right, bottom of the square in fractions of the photograph."""
FULL_IMAGE: CropBox = (0.0, 0.0, 1.0, 1.0)


@contextmanager
def load_image(source: Source, side: int) -> Iterator[Image.Image]:
    """Decode an image upright; errors inside the context name its file.

    Large JPEG files are decoded at a reduced resolution, never below `side`.
    """
    with open_image(source) as image:
        if image is not source:
            image.draft(None, (side, side))
        yield upright(image)


@contextmanager
def open_image(source: Source) -> Iterator[Image.Image]:
    """Open an image, not yet decoded; errors inside the context name its file."""
    try:
        if isinstance(source, Image.Image):
            yield source
            return
        with open_source(Path(source)) as file, Image.open(file, formats=_kinds(file)) as image:
            yield image
    except Exception as error:  # Pillow's decoders raise almost any exception on a broken file
        reason = f"{type(error).__name__}: {quoted(error)}"
        if isinstance(error, UnidentifiedImageError):
            reason = f"it is of another kind than {', '.join(FORMATS)}, or incomplete"
            if (bands := _bands(Path(str(source)))) > MOST_BANDS:
                reason = f"it is a TIFF of {bands} bands; at most {MOST_BANDS} can be read"
        if isinstance(error, Image.DecompressionBombError):
            pixels, most = (int(number) / 1e6 for number in re.findall(r"\d+", str(error))[:2])
            reason = f"it has {pixels:.0f} megapixels; at most {most:.0f} are read: make it smaller"
        raise CaptioningError(f"cannot read the image {quoted(source)}: {reason}") from error


def _kinds(file: BinaryIO) -> tuple[str, ...]:
    """The kinds of files that the reader of this one may have; HEIC needs a library."""
    begin = file.read(11)
    file.seek(0)
    if begin[4:] not in (b"ftyphei", b"ftyphev"):
        return FORMATS
    try:
        import pillow_heif  # an extra
    except ImportError as error:
        raise ValueError(
            "it is a HEIC file: pip install 'captioning[heic]', or save it as JPEG"
        ) from error
    pillow_heif.register_heif_opener()
    return ("HEIF",)


def _bands(path: Path) -> int:
    """The number of bands of a TIFF; 0 of other files."""
    with suppress(Exception), open_source(path) as file:
        from PIL import TiffImagePlugin  # here, because it is slow to import

        tags = TiffImagePlugin.ImageFileDirectory_v2(file.read(8))
        file.seek(tags.next)
        tags.load(file)
        return int(tags[277])  # samples per pixel
    return 0


def frame_of(resize: str, width: int, height: int) -> CropBox:
    """Return the square of the photograph after `stretch`, `crop` or `pad`."""
    if resize == "stretch":
        return FULL_IMAGE
    side = min(width, height) if resize == "crop" else max(width, height)
    left, top = (1 - side / width) / 2, (1 - side / height) / 2
    return left, top, 1 - left, 1 - top
