"""A photograph that somebody has sent: judged before it is decoded, and kept in memory alone."""

import io
from http import HTTPStatus

from PIL import Image, UnidentifiedImageError

from captioning.errors import quoted
from captioning.files import FORMATS
from captioning.serve.server import Refused

MEGA = 1_000_000
ANIMATED = ("AVIF", "GIF", "PNG", "WEBP")
"""Formats that hold films; further pictures of others, as telephones write them, are views of the same photograph."""


def read_upload(content: bytes, megapixels: float) -> Image.Image:
    """The decoded image, not yet upright.

    Args:
        content: a file of one of the formats that are read elsewhere.
        megapixels: that it may have at most.

    Raises:
        Refused: it is no such file, damaged, an animation, or too large.
    """
    large = Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the photograph has too many pixels; allowed are {megapixels:g} million: scale it down",
    )
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > megapixels * MEGA:
            raise large
        if image.format in ANIMATED and getattr(image, "is_animated", False):
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "this is an animation: give one picture of it")
        image.load()
    except Image.DecompressionBombError as error:
        raise large from error
    except UnidentifiedImageError as error:
        kinds = ", ".join(FORMATS)
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"this is no photograph; allowed are {kinds}") from error
    except Refused:
        raise
    except Exception as error:  # Pillow's decoders raise nearly every exception there is on a broken file
        reason = f"{type(error).__name__}: {quoted(error)}"
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"the photograph cannot be read ({reason})") from error
    return image
