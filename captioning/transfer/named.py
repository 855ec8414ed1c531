"""Captioners that lie elsewhere: `https://HOST/FILE.safetensors#sha256=HEX`, or `hf:USER/NAME` of the Hugging Face Hub.

They are downloaded once: into the folder `captioning` of the user's cache, or the hub's own. Files of safetensors alone
are taken, what `captioning.export` writes: numbers and text.
"""

import os
import re
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from captioning.errors import CaptioningError, quoted
from captioning.transfer.archive import Archive
from captioning.transfer.fetch import Connection, fetch

SUFFIX: Final = ".safetensors"
HUB: Final = "hf:"
FILE: Final = f"captioner{SUFFIX}"
"""What a captioner is called in its repository of the hub."""
REPOSITORY = re.compile(r"hf:(?P<repo_id>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
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
    if not (REPOSITORY.fullmatch(str(name)) or ADDRESS.fullmatch(str(name))):
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
    if repository := REPOSITORY.fullmatch(name):
        return _of_hub(name, **repository.groupdict())
    address = ADDRESS.fullmatch(name)
    assert address
    archive = Archive(address["url"], {}, checksum=f"sha256:{address['sha256']}")
    path = cache() / f"{address['sha256']}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):  # another process may be at it
        if not path.exists():
            fetch(archive, path, PATIENT)
    return path


def _of_hub(name: str, **repository: Any) -> Path:
    from huggingface_hub import hf_hub_download  # here, because it takes a second
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(filename=FILE, **repository))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise CaptioningError(f"{name} does not come from the Hugging Face Hub: {quoted(reason)}") from error


def cache() -> Path:
    """The folder of what was downloaded."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "captioning"
