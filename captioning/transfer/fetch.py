"""Download a file over HTTP: resumed where it was interrupted, checked, and complete or absent."""

import hashlib
import math
import sys
import time
from pathlib import Path, PurePosixPath
from shutil import disk_usage
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from annotated_types import Ge, Interval
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from captioning.config.types import Seconds
from captioning.errors import CaptioningError
from captioning.progress import counter
from captioning.transfer.request import VERSION, Interrupted, ask, blocks, check_status, span, version

if TYPE_CHECKING:
    from tqdm import tqdm

MAX_WAIT = 60  # seconds between two tries
MAX_TRIES = 1000  # each of which may bring a little
MAX_BYTES = 10**11  # of a file of unknown size
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Connection(BaseModel):
    """Patience of a download: silence and waits in seconds, tries in a row that bring no byte."""

    model_config = STRICT
    timeout: Seconds
    retries: Annotated[int, Interval(ge=0, le=1000)]
    backoff: Annotated[float, Interval(ge=0, le=3600)]


def _file_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or not url.isprintable():
        raise ValueError("must be an http or https address")
    if PurePosixPath(parts.path).name in ("", ".."):
        raise ValueError("must be the address of a file")
    return url


class RemoteFile(BaseModel):
    """A file on a server; its size in bytes and its checksum where they are known."""

    model_config = STRICT
    url: Annotated[str, AfterValidator(_file_address)]
    size: Annotated[int, Ge(1)] | None = None
    checksum: Annotated[str, Field(pattern=r"^(sha256:[0-9a-fA-F]{64}|md5:[0-9a-fA-F]{32})$")] | None = None

    @property
    def name(self) -> str:
        """Last part of the address."""
        return PurePosixPath(urlsplit(self.url).path).name

    def difference(self, path: Path) -> str | None:
        """Difference between this file and one on disk; None if there is none."""
        if self.size is not None and length(path) != self.size:
            return f"{length(path):,} bytes instead of {self.size:,}"
        if self.checksum is None:
            return None
        algorithm, _, expected = self.checksum.partition(":")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
        return None if found == expected.lower() else f"the {algorithm} {found} instead of {expected}"


class Unavailable(CaptioningError):
    """The server cannot be reached, or does not have the file."""


def fetch(
    file: RemoteFile, path: Path, connection: Connection, token: str | None = None, longest: float = math.inf
) -> None:
    """Download to `path.part`, continuing what is there; rename it to `path` once it is complete and checked.

    `longest`: seconds for all tries together.
    """
    part, end = partial_file(path), time.monotonic() + longest
    check_regular(part)
    if file.size is not None and length(part) > file.size:
        part.unlink()
    most, failures, tries = length(part), 0, 0
    with byte_bar(file.name, file.size, most) as bar:
        while file.size is None or length(part) < file.size:
            tries += 1
            try:
                _receive(file, part, connection.timeout, bar, token, end)
                break
            except Interrupted as error:
                failures = 1 if length(part) > most else failures + 1
                most = max(most, length(part))
                wait = min(connection.backoff * 2 ** (failures - 1), MAX_WAIT)
                last = failures > connection.retries or tries == MAX_TRIES or time.monotonic() + wait > end
                if error.final or last:
                    host = urlsplit(file.url).netloc
                    raise Unavailable(f"cannot download {file.name} from {host}: {error}") from error
                bar.write(f"{file.name}: {error}; next try in {wait:g} s", file=sys.stderr)
                time.sleep(wait)
        difference = file.difference(part)
    if difference:
        part.unlink()
        raise CaptioningError(
            f"{file.name} has {difference}: it was damaged on the way, or replaced at {file.url}. The download is "
            "deleted; run the same command again"
        )
    part.replace(path)
    _version_file(part).unlink(missing_ok=True)


def _receive(file: RemoteFile, part: Path, timeout: float, bar: "tqdm[Any]", token: str | None, end: float) -> None:
    """Ask once for what is missing of `part` and append what comes."""
    done, known = length(part), _version_file(part)
    headers = {"Range": f"bytes={done}-"} if done else {}
    if done and known.is_file() and VERSION.fullmatch(name := known.read_text("utf-8", errors="replace")):
        headers["If-Range"] = name
    with ask("GET", file.url, timeout, token, **headers) as response:
        if response.status_code == 416 and done:
            if response.headers.get("Content-Range") == f"bytes */{done}":
                return
            part.unlink()  # it is longer than the file
        check_status(response)
        first, total = span(response, done)
        limit = file.size or total or MAX_BYTES
        if limit > MAX_BYTES or total not in (None, limit):
            raise _replaced(file, f"{total:,} bytes")
        if first < done:
            bar.write(f"{file.name}: starting again, the server does not send the rest alone", file=sys.stderr)
        if first == 0:
            part.unlink(missing_ok=True)
            known.write_text(version(response), encoding="utf-8")
        bar.total, bar.n = total, first
        bar.refresh()
        with part.open("ab", buffering=0) as target:  # unbuffered: a process that is killed keeps it
            for block in blocks(response, end):
                first += len(block)
                if first > limit:
                    part.unlink()
                    raise _replaced(file, f"more than {limit:,} bytes")
                target.write(block)
                bar.update(len(block))
    if first < limit != MAX_BYTES:
        raise Interrupted(f"the connection ended after {first:,} of {limit:,} bytes")


def _replaced(file: RemoteFile, found: str) -> CaptioningError:
    return CaptioningError(
        f"{file.url} has {found}, expected are {file.size or f'at most {MAX_BYTES:,}'}: it was replaced. If you trust "
        "it, set size and checksum of data.archives, to null if you do not know them"
    )


def partial_file(path: Path) -> Path:
    """File that a download of `path` grows in."""
    return path.with_name(f"{path.name}.part")


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.version")


def length(path: Path) -> int:
    """Bytes of a file, 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def check_regular(path: Path) -> None:
    """Refuse pipes and the like, which block whoever opens them."""
    if path.exists() and not path.is_file():
        raise FileExistsError(17, "exists and is not a regular file", str(path))


def check_free(folder: Path, needed: int, purpose: str) -> None:
    """Refuse to start what would fill the disk of `folder`."""
    if needed > (free := disk_usage(folder).free):
        raise CaptioningError(
            f"{needed / 1e9:.2f} GB are needed to {purpose}, and {free / 1e9:.2f} GB are free on the disk of {folder}: "
            "free some space, or choose another folder with root=FOLDER"
        )


def byte_bar(text: str, total: int | None, initial: int = 0) -> "tqdm[Any]":
    """Progress in bytes; `total` None: unknown."""
    return counter(text, total, "B", initial=initial, unit_scale=True)
