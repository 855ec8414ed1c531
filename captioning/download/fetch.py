"""One file over HTTP: going on where it was interrupted, by whatever."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Annotated
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from annotated_types import Interval
from tqdm import tqdm

from captioning.borders.bounds import Seconds, bounded
from captioning.download.archive import BLOCK, Archive
from captioning.download.progress import byte_bar
from captioning.errors import CaptioningError

TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same request may succeed."""
LONGEST_WAIT = 60
"""Seconds between two tries."""


@bounded
@dataclass(frozen=True, slots=True)
class Connection:
    """How patient a download is.

    Args:
        timeout: seconds of silence after which a connection counts as lost.
        retries: tries in a row that may bring no byte, after the first.
        backoff: seconds before the first of them, twice as many before each next.

    Raises:
        ValueError: one of them is too small or too large.
    """

    timeout: Seconds
    retries: Annotated[int, Interval(ge=0, le=1000)]
    backoff: Annotated[float, Interval(ge=0, le=3600)]


class Interrupted(Exception):
    """The transfer ended early; a later try may go on with it."""


class Unavailable(CaptioningError):
    """There is no way to the server, or it does not have the file."""


def fetch(archive: Archive, path: Path, connection: Connection) -> None:
    """Downloads `archive` to `path`.

    Until it is whole and checked it is called `path.part`. What is there of it already is not asked for again, unless
    the server cannot send the rest alone, or the file has changed there since.

    Raises:
        Unavailable: as often as it was tried, nothing more came.
        CaptioningError: the file is not the one that was expected.
        OSError: the file cannot be written.
    """
    part = partial(path)
    if archive.size is not None and length(part) > archive.size:
        part.unlink()
    most, failures = length(part), 0
    with byte_bar(archive.name, archive.size, most) as bar:
        while archive.size is None or length(part) < archive.size:
            try:
                _receive(archive, part, connection.timeout, bar)
                break
            except Interrupted as error:
                failures = 1 if length(part) > most else failures + 1
                most = max(most, length(part))
                if failures > connection.retries:
                    raise Unavailable(f"{archive.name} does not come from {archive.host}: {error}") from error
                wait = min(connection.backoff * 2 ** (failures - 1), LONGEST_WAIT)
                bar.write(f"{archive.name}: {error}; again in {wait:g} s", file=sys.stderr)
                time.sleep(wait)
    wrong = archive.wrong(part)
    if wrong:
        part.unlink()
        raise CaptioningError(
            f"{archive.name} has {wrong}: damaged on the way, or replaced at {archive.url}. It is deleted; the same "
            "command downloads it again"
        )
    part.replace(path)
    _version(part).unlink(missing_ok=True)


def partial(path: Path) -> Path:
    """Where the file of that `path` grows."""
    return path.with_name(f"{path.name}.part")


def length(path: Path) -> int:
    """Bytes of a file, 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def _version(part: Path) -> Path:
    """The file with what the server calls this version of the file: its ETag, or when it was changed."""
    return part.with_name(f"{part.name}.version")


def _receive(archive: Archive, part: Path, timeout: float, bar: "tqdm[None]") -> None:
    """Asks once for what is missing of `part` and appends what comes."""
    done = length(part)
    response = _answer(archive, part, done, timeout)
    if response is None:
        return
    with response:
        first, total = _place(response, done)
        if None not in (total, archive.size) and total != archive.size:
            raise CaptioningError(
                f"{archive.url} has {total:,} bytes, expected are {archive.size:,}: it was replaced there. If you "
                "trust it, set the size and the checksum of data.archives, to null if you do not know them"
            )
        if first < done:
            anew = "begins anew: there is another file by now, or the server cannot send the rest alone"
            bar.write(f"{archive.name} {anew}", file=sys.stderr)
        if first == 0:
            part.unlink(missing_ok=True)
            _version(part).write_text(_strong_name(response))
        bar.total = total
        bar.n = first
        bar.refresh()
        with part.open("ab") as file:
            for block in _blocks(response):
                file.write(block)
                file.flush()  # or a killed process would lose what it holds back
                bar.update(len(block))
    expected = total if total is not None else archive.size
    if expected is not None and length(part) < expected:
        raise Interrupted(f"the connection ended after {length(part):,} of {expected:,} bytes")


def _answer(archive: Archive, part: Path, done: int, timeout: float) -> HTTPResponse | None:
    """The server's answer, asked for the bytes from `done` on; None if there are none."""
    request = Request(archive.url, headers={"User-Agent": "captioning"})
    if done:
        request.add_header("Range", f"bytes={done}-")
        version = _version(part).read_text() if _version(part).exists() else ""
        if version:
            request.add_header("If-Range", version)  # all of it, if it is another file by now
    try:
        with _network():
            response: HTTPResponse = urlopen(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{done}":
            return None
        if error.code == 416:  # what is here is longer than the file
            part.unlink()
        elif error.code not in TRANSIENT:
            message = f"{archive.name} does not come from {archive.host}: it answers {error.code} {error.reason}"
            raise Unavailable(message) from error
        raise Interrupted(f"it answers {error.code} {error.reason}") from error
    return response


def _place(response: HTTPResponse, done: int) -> tuple[int, int | None]:
    """Where in the file the response begins, and how long the file is, if the server says so."""
    if response.status == 206:
        place, _, total = response.headers.get("Content-Range", "").partition("/")
        if not place.startswith(f"bytes {done}-"):
            raise Interrupted(f"it was asked for the bytes from {done} and answers with {place or 'others'}")
        return done, int(total) if total.isdigit() else None
    whole = response.headers.get("Content-Length", "")
    return 0, int(whole) if whole.isdigit() else None


def _strong_name(response: HTTPResponse) -> str:
    """What names this version of the file, byte by byte; "" if the server has no such name."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    """What comes, as it comes: a longer read would lose its beginning when the connection ends in the middle."""
    while True:
        with _network():
            block = response.read1(BLOCK)
        if not block:
            return
        yield block


@contextmanager
def _network() -> Iterator[None]:
    """Nothing but the network is used in it, so that no error of the disk is taken for one of the connection.

    Raises:
        Interrupted: for whatever happens to a connection.
    """
    try:
        yield
    except HTTPError:
        raise
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise Interrupted(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__) from error
