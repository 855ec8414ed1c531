"""Download a file over HTTP: resumed where it was interrupted, checked, and complete or absent."""

import hashlib
import sys
import time
from pathlib import Path, PurePosixPath
from shutil import disk_usage
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from annotated_types import Ge, Interval
from pydantic import BaseModel, ConfigDict, Field

from captioning.config.types import Seconds
from captioning.errors import CaptioningError, quoted
from captioning.progress import progress_bar

if TYPE_CHECKING:
    from tqdm import tqdm

BLOCK = 1 << 20
MAX_WAIT = 60  # seconds between two tries
MAX_BYTES = 10**11  # of a file of unknown size
TRANSIENT = (408, 416, 425, 429, 500, 502, 503, 504)  # answers after which another try may succeed
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Connection(BaseModel):
    """Timeouts and waits in seconds, and the number of fruitless tries in a row."""

    model_config = STRICT
    timeout: Seconds
    retries: Annotated[int, Interval(ge=0, le=1000)]
    backoff: Annotated[float, Interval(ge=0, le=3600)]


class RemoteFile(BaseModel):
    """A file on a server; its size in bytes and its checksum where they are known."""

    model_config = STRICT
    url: Annotated[str, Field(pattern=r"^https?://[^/\s]+/\S*[^/.\s]$")]
    size: Annotated[int, Ge(1)] | None = None
    checksum: (
        Annotated[str, Field(pattern=r"^(sha256:[0-9a-fA-F]{64}|md5:[0-9a-fA-F]{32})$")] | None
    ) = None

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.url).path).name

    def check(self, path: Path, advice: str) -> None:
        """Refuse a file on disk that is not this one."""
        size, expected, found = length(path), str(self.checksum).lower(), ""
        if size != self.size and (self.size or size > MAX_BYTES):
            raise CaptioningError(
                f"{path} has {size:,} bytes instead of {self.size or MAX_BYTES:,}: {advice}"
            )
        if self.checksum:
            algorithm = expected.partition(":")[0]
            with path.open("rb") as file:
                digest = hashlib.file_digest(
                    file, lambda: hashlib.new(algorithm, usedforsecurity=False)
                )
            if (found := f"{algorithm}:{digest.hexdigest()}") != expected:
                raise CaptioningError(f"{path} has {found} instead of {expected}: {advice}")


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
                cause: BaseException = error
                answer = getattr(error, "response", None)
                while further := cause.__cause__ or cause.__context__:
                    cause = further
                reason = quoted(getattr(cause, "strerror", None) or cause)
                if failures > connection.retries or (
                    answer is not None and answer.status_code not in TRANSIENT
                ):
                    host = urlsplit(file.url).netloc
                    raise Unavailable(
                        f"cannot download {file.name} from {host}: {reason}"
                    ) from error
                wait = min(connection.backoff * 2 ** (failures - 1), MAX_WAIT)
                bar.write(f"{file.name}: {reason}; next try in {wait:g} s", file=sys.stderr)
                time.sleep(wait)
    try:
        file.check(
            part, f"it was damaged on the way, or replaced at {file.url}. It is deleted; try again"
        )
    except CaptioningError:
        part.unlink()
        raise
    part.replace(path)
    Path(f"{part}.version").unlink(missing_ok=True)


def _receive(file: RemoteFile, part: Path, timeout: float, bar: "tqdm[Any]") -> None:
    """Ask once for what is missing of `part` and append what comes."""
    import requests

    done, known = length(part), Path(f"{part}.version")
    headers = {"Accept-Encoding": "identity", "User-Agent": "captioning"}
    headers |= {"Range": f"bytes={done}-"} if done else {}
    if done and known.is_file() and (version := known.read_text(encoding="utf-8")):
        headers["If-Range"] = version
    with requests.get(file.url, headers=headers, stream=True, timeout=timeout) as response:
        if response.status_code == 416:  # `part` is longer than the file
            part.unlink()
        response.raise_for_status()
        first = (
            done if response.headers.get("Content-Range", "").startswith(f"bytes {done}-") else 0
        )
        remaining, limit = response.raw.length_remaining, file.size or MAX_BYTES
        total = None if remaining is None else first + remaining
        if total is not None and (total > limit or file.size not in (None, total)):
            raise CaptioningError(
                f"{file.url} has {total:,} bytes, expected are {limit:,}: it was replaced. If you "
                "trust it, set size "
                "and checksum of data.archives, to null if you do not know them"
            )
        if not first:
            part.unlink(missing_ok=True)
            etag, date = (
                response.headers.get("ETag", "W/"),
                response.headers.get("Last-Modified", ""),
            )
            known.write_text(date if etag.startswith("W/") else etag, encoding="utf-8")
        bar.total, bar.n = total, first
        bar.refresh()
        with part.open(
            "ab", buffering=0
        ) as target:  # unbuffered: a process that is killed keeps it
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
            f"the disk of {folder}: "
            "free some space, or choose another folder with root=FOLDER"
        )
