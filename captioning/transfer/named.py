"""Captioners that lie elsewhere: `https://HOST/FILE.safetensors#sha256=HEX`, or `hf:USER/NAME` of the Hugging Face Hub.

They are downloaded once: into the folder `captioning` of the user's cache, or the hub's own. Files of safetensors alone
are taken, what `captioning.export` writes: numbers and text.
"""

import os
import re
from pathlib import Path
from typing import Final

from filelock import FileLock

from captioning.errors import CaptioningError, quoted
from captioning.transfer import hub
from captioning.transfer.archive import Archive
from captioning.transfer.fetch import Connection, fetch
from captioning.transfer.hub import HUB, repository

SUFFIX: Final = ".safetensors"
ADDRESS = re.compile(r"(?P<url>https?://[^#]+\.safetensors)#sha256=(?P<sha256>[0-9a-f]{64})")
PATIENT = Connection(timeout=30, retries=4, backoff=1)


def is_elsewhere(name: object) -> bool:
    """Whether it is an address, and not a file of this machine."""
    return str(name).startswith((HUB, "http://", "https://"))


def check_address(key: str, name: object) -> None:
    """Refuses an address of another form.

    Raises:
        CaptioningError: says what is allowed.
    """
    if not (ADDRESS.fullmatch(str(name)) or repository(name)):
        raise CaptioningError(
            f"{key}={quoted(name)} is not allowed; a captioner elsewhere is https://HOST/FILE{SUFFIX}#sha256=HEX, "
            "64 digits, or hf:USER/NAME, or hf:USER/NAME@REVISION"
        )


def fetched(name: str) -> Path:
    """The file of an address, downloaded if it is not there yet.

    Raises:
        CaptioningError: an address of another form; the file does not come, or is another one.
    """
    check_address("checkpoint", name)
    try:
        if place := repository(name):
            try:
                return hub.fetched(place, PATIENT)
            except CaptioningError as error:
                raise CaptioningError(f"{name} does not come from the Hugging Face Hub: {error}") from error
        return _of_address(name)
    except (OSError, RuntimeError, ValueError) as error:  # `RuntimeError` of a user without a home
        raise CaptioningError(
            f"{name} cannot be brought to this machine: {quoted(error)}; set XDG_CACHE_HOME, for the Hugging Face Hub "
            "HF_HOME, to a folder that can be written"
        ) from error


def _of_address(name: str) -> Path:
    address = ADDRESS.fullmatch(name)
    assert address
    archive = Archive(address["url"], {}, checksum=f"sha256:{address['sha256']}")
    path = cache() / f"{address['sha256']}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):  # another process may be at it
        if not path.exists():
            fetch(archive, path, PATIENT, longest=hub.patience(None))
    return path


def cache() -> Path:
    """The folder of what was downloaded."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "captioning"
