"""Download a file over HTTP: resumed where it was interrupted, checked, and complete or absent."""

import sys
import time
from pathlib import Path, PurePosixPath
from shutil import disk_usage
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from captioning.config.types import PositiveInt, Seconds, between
from captioning.errors import CaptioningError, quoted
from captioning.files import LARGEST_DOWNLOAD, digest_of_file
from captioning.progress import progress_bar

if TYPE_CHECKING:
    from tqdm import tqdm

BLOCK = 1 << 20
MAX_WAIT = 60  # seconds between two tries
TRANSIENT = (408, 416, 425, 429, 500, 502, 503, 504)  # answers after which another try may succeed
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Connection(BaseModel):
    """How to ask a server."""

    model_config = ConfigDict(**STRICT, use_attribute_docstrings=True)
    timeout: Seconds
    """seconds without data until the connection counts as lost"""
    retries: Annotated[int, between(0, 1000)]
    """retries in a row without receiving a byte"""
    backoff: Annotated[float, between(0, 3600)]
    """seconds before the first retry; doubled for each further one"""


class RemoteFile(BaseModel):
    """A file on a server; its size in bytes and its checksum where they are known."""

    model_config = STRICT
    url: Annotated[str, Field(pattern=r"^https?://[^/\s]+/\S*[^/.\s]$")]
    size: PositiveInt | None = None
    checksum: (
        Annotated[str, Field(pattern=r"^(sha256:[0-9a-fA-F]{64}|md5:[0-9a-fA-F]{32})$")] | None
    ) = None

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.url).path).name

    def check(self, path: Path, advice: str) -> None:
        """Refuse a file on disk that is not this one."""
        size, limit = length(path), self.size or LARGEST_DOWNLOAD
        if size > limit or self.size not in (None, size):
            raise CaptioningError(f"{path} has {size:,} bytes instead of {limit:,}: {advice}")
        if self.checksum:
            algorithm, _, expected = self.checksum.lower().partition(":")
            digest = digest_of_file(path, algorithm)
            if digest != expected:
                raise CaptioningError(
                    f"{path} has {algorithm}:{digest} instead of {expected}: {advice}"
                )


class Unavailable(CaptioningError):
    """The server cannot be reached, or does not have the file."""


def fetch(file: RemoteFile, path: Path, connection: Connection) -> None:
    """Download or resume `path.part`; rename it to `path` once complete and checked."""
    import requests  # here, because most commands download nothing
    from urllib3.exceptions import HTTPError

    part, failures = Path(f"{path}.part"), 0
    if file.size is not None and length(part) > file.size:
        part.unlink()
    most = length(part)
    with progress_bar(file.name, file.size, "B", initial=most, unit_scale=True) as bar:
        while file.size is None or length(part) < file.size:
            try:
                _receive(file, part, connection.timeout, bar)
                break
            except (requests.RequestException, HTTPError) as error:
                failures = 1 if length(part) > most else failures + 1
                most = max(most, length(part))
                answer = error.response if isinstance(error, requests.HTTPError) else None
                final = answer is not None and answer.status_code not in TRANSIENT
                if final or failures > connection.retries:
                    host = urlsplit(file.url).netloc
                    raise Unavailable(
                        f"cannot download {file.name} from {host}: {quoted(error)}"
                    ) from error
                wait = min(connection.backoff * 2 ** (failures - 1), MAX_WAIT)
                bar.write(f"{file.name}: {quoted(error)}; next try in {wait:g} s", file=sys.stderr)
                time.sleep(wait)
    try:
        file.check(
            part, f"it was damaged on the way, or replaced at {file.url}. It is deleted; try again"
        )
    except CaptioningError:
        part.unlink()
        raise
    part.replace(path)


def _receive(file: RemoteFile, part: Path, timeout: float, bar: "tqdm[Any]") -> None:
    """Ask once for what is missing of `part` and append what comes."""
    import requests

    done = length(part)
    headers = {"Accept-Encoding": "identity", "User-Agent": "captioning"}
    if done:
        headers["Range"] = f"bytes={done}-"
    with requests.get(file.url, headers=headers, stream=True, timeout=timeout) as response:
        if response.status_code == 416:  # `part` is longer than the file
            part.unlink()
        response.raise_for_status()
        ranged = response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
        first = done if ranged else 0
        remaining, limit = response.raw.length_remaining, file.size or LARGEST_DOWNLOAD
        total = None if remaining is None else first + remaining
        if total is not None and (total > limit or file.size not in (None, total)):
            raise CaptioningError(
                f"{file.url} has {total:,} bytes, expected are {limit:,}: it was replaced. If you "
                "trust it, set size and checksum of data.archives, to null if you do not know them"
            )
        if not first:
            part.unlink(missing_ok=True)
        bar.total, bar.n = total, first
        bar.refresh()
        # unbuffered: a process that is killed keeps it
        with part.open("ab", buffering=0) as target:
            # `read` and `iter_content` would lose the beginning of a block that fails
            while first <= limit and (block := response.raw.read1(BLOCK, decode_content=False)):
                first += target.write(block)
                bar.update(len(block))


def length(path: Path) -> int:
    """Bytes of a file, 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def check_free(folder: Path, needed: int, purpose: str) -> None:
    """Refuse to start what would fill the disk of `folder`."""
    if needed > (free := disk_usage(folder).free):
        raise CaptioningError(
            f"{needed / 1e9:.2f} GB are needed to {purpose}, and {free / 1e9:.2f} GB are free on "
            f"the disk of {folder}: free some space, or choose another folder with root=FOLDER"
        )
