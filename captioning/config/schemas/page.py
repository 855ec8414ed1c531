"""Settings that `report` and `compare` share."""

from typing import Annotated

from annotated_types import Interval

from captioning.config.settings import Settings


class PageSettings(Settings):
    """Settings below `page`."""

    image_size: Annotated[int, Interval(ge=32, le=2048)]
    """pixels of the longer side of an image in index.html"""
    embed_mb: Annotated[float, Interval(ge=0, le=1000)]
    """MB of images in index.html; the rest is saved next to it, in photographs/"""
