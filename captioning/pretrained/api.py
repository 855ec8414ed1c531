"""Addresses of captioners on servers of chats with images: `api:http://HOST/v1#MODEL`.

The user's key for the server, if it needs one, is in the environment, in the variable `KEY`.
"""

import logging
import os
import re
from collections.abc import Sequence
from typing import Annotated

from captioning.config.types import (
    Count,
    Length,
    NotNegative,
    PixelSize,
    PositiveInt,
    Seconds,
    Seed,
    validated_class,
)
from captioning.errors import SECRETS, CaptioningError, quoted
from captioning.pretrained.library import API

log = logging.getLogger(__name__)

KEY = "CAPTIONING_API_KEY"
ADDRESS = re.compile(
    rf"{API}(?P<base>(?P<scheme>https?)://(?P<server>(?P<host>[\w.-]+|\[[0-9a-f:]+\])(:\d+)?)"
    r"(/[^\s?#@]*[^\s?#@/])?)/?#(?P<model>\S+)",
    re.ASCII,
)
THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


@validated_class
class Asking:
    """Settings of `decoding`: what is asked of each image, and how; their values are (D)."""

    prompt: Annotated[
        str, "text that asks a model of transformers or of a server, such as 'Describe the image.'"
    ] = "Describe the image in one short sentence."
    max_length: Length = 100
    temperature: NotNegative = 0
    seed: Seed | None = None
    n_best: Count = 1
    omit: Annotated[
        Sequence[str],
        "fields of a request that the server does not know, such as [temperature, seed]",
    ] = ()
    size: Annotated[PixelSize, "pixels of the longer side of the images that a server is sent"] = (
        768
    )
    quality: Annotated[Count, "of these JPEG files, 1 to 100"] = 90
    requests: Annotated[
        Count, "images that a server is asked about at once, at most those of a batch"
    ] = 8
    timeout: Annotated[Seconds, "seconds that a server has for an answer"] = 120
    tries: Annotated[
        Count, "the most requests about an image, after no answer, HTTP 429 or 5xx"
    ] = 5
    backoff: Annotated[
        Seconds, "seconds before the second of them; doubled for each further one"
    ] = 1
    budget: Annotated[PositiveInt | None, "the most requests of this command to a server"] = None


def is_api(setting: object) -> bool:
    """Tell whether a checkpoint is a captioner behind an address."""
    return str(setting).startswith(API)


def read_address(setting: object) -> re.Match[str]:
    """The parts of an address; refuses a key that others could read on its way."""
    found = ADDRESS.fullmatch(str(setting))
    if not found:
        raise CaptioningError(
            f"checkpoint={quoted(setting)} is not allowed; a captioner behind an address is "
            f"{API}http://HOST/v1#MODEL"
        )
    if api_key() and found["scheme"] == "http" and found["host"] not in THIS_MACHINE:
        raise CaptioningError(
            f"{KEY} would go to {found['host']} without encryption: name the server by https://, "
            "or unset the variable if it needs no key"
        )
    return found


def api_key() -> str:
    """The user's key or nothing; no message shows it from now on."""
    key = "".join(os.environ.get(KEY, "").split())
    SECRETS.update({key} if key else ())
    return key


def announce(setting: object, images: int) -> None:
    """Say where images will be sent, if the checkpoint is behind an address."""
    if is_api(setting):
        to = read_address(setting)
        log.info("images are sent to %s, to its model %s: %d", to["server"], to["model"], images)
