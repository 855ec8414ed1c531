"""One file over HTTP: going on where it was interrupted, by whatever."""

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.error import HTTPError

from annotated_types import Interval
from tqdm import tqdm

from captioning.config.types import Seconds, bounded
from captioning.errors import CaptioningError, quoted
from captioning.transfer.archive import Archive
from captioning.transfer.http import TRANSIENT, VERSION, Interrupted, Request, Unavailable, place, version
from captioning.transfer.progress import byte_bar

LONGEST_WAIT = 60
"""Seconds between two tries."""
MOST_TRIES = 1000
"""Of one file, each of which may bring a little."""
LARGEST = 10**11
"""Bytes of a file whose size the configuration does not know."""


@bounded
@dataclass(frozen=True, slots=True)
class Connection:
    """How patient a download is.

    Args:
        timeout: seconds of silence after which a connection counts as lost; twice as many of hardly more than silence.
        retries: tries in a row that may bring no byte, after the first.
        backoff: seconds before the first of them, twice as many before each next.

    Raises:
        ValueError: one of them is too small or too large.
    """

    timeout: Seconds
    retries: Annotated[int, Interval(ge=0, le=1000)]
    backoff: Annotated[float, Interval(ge=0, le=3600)]


def fetch(
    archive: Archive, path: Path, connection: Connection, token: str | None = None, longest: float = math.inf
) -> None:
    """Downloads `archive` to `path`.

    Until it is whole and checked it is called `path.part`. What is there of it already is not asked for again, unless
    the server cannot send the rest alone, or the file has changed there since.

    Args:
        archive: what is known of the file.
        path: where it will lie.
        connection: how patient every try is.
        token: that the server knows the user by.
        longest: seconds for all tries together.

    Raises:
        Unavailable: as often as it was tried, nothing more came.
        CaptioningError: the file is not the one that was expected.
        OSError: the file cannot be written.
    """
    part, end = partial(path), time.monotonic() + longest
    for file in (part, _version(part)):
        check_file(file)
    if archive.size is not None and length(part) > archive.size:
        part.unlink()
    most, failures, tries = length(part), 0, 0
    with byte_bar(archive.name, archive.size, most) as bar:
        while archive.size is None or length(part) < archive.size:
            tries += 1
            try:
                _receive(archive, part, connection.timeout, bar, token, end)
                break
            except Interrupted as error:
                failures = 1 if length(part) > most else failures + 1
                most = max(most, length(part))
                wait = min(connection.backoff * 2 ** (failures - 1), LONGEST_WAIT)
                if failures > connection.retries or tries == MOST_TRIES or time.monotonic() + wait > end:
                    raise Unavailable(f"{archive.name} does not come from {archive.host}: {error}") from error
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


def check_file(path: Path) -> None:
    """Refuses what is no file, of which some would be waited for when they are read.

    Raises:
        CaptioningError: something else has that name.
    """
    if path.exists() and not path.is_file():
        raise CaptioningError(f"{path} is no file: move it away, or choose another folder with root=FOLDER")


def _version(part: Path) -> Path:
    """The file with what the server calls this version of the file."""
    return part.with_name(f"{part.name}.version")


def _receive(archive: Archive, part: Path, timeout: float, bar: "tqdm[None]", token: str | None, end: float) -> None:
    """Asks once for what is missing of `part` and appends what comes."""
    done = length(part)
    request = Request(archive.url, timeout, done, _known_version(part), token, end)
    try:
        response = request.answer()
    except HTTPError as error:
        _refused(archive, part, done, error)
        return
    with response:
        first, total = place(response, done)
        most = _most(archive, total)
        if first < done:
            anew = "begins anew: there is another file by now, or the server cannot send the rest alone"
            bar.write(f"{archive.name} {anew}", file=sys.stderr)
        if first == 0:
            part.unlink(missing_ok=True)
            _version(part).write_text(version(response), encoding="utf-8")
        bar.total = total
        bar.n = first
        bar.refresh()
        with part.open("ab") as file:
            for block in request.blocks(response):
                first += len(block)
                if first > most:
                    part.unlink()
                    raise CaptioningError(_replaced(archive, f"sends more than {most:,} bytes"))
                file.write(block)
                file.flush()  # or a killed process would lose what it holds back
                bar.update(len(block))
    expected = total if total is not None else archive.size
    if expected is not None and length(part) < expected:
        raise Interrupted(f"the connection ended after {length(part):,} of {expected:,} bytes")


def _known_version(part: Path) -> str:
    """What the server called the file that the part is from; "" if that is not known, or was damaged."""
    path = _version(part)
    name = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return name if VERSION.fullmatch(name) else ""


def _most(archive: Archive, total: int | None) -> int:
    """The bytes that may come at most, of a file that has `total` by what the server says.

    Raises:
        CaptioningError: it is not the file that was meant.
    """
    if archive.size is None:
        if total is not None and total > LARGEST:
            raise CaptioningError(_replaced(archive, f"has {total:,} bytes, allowed are {LARGEST:,}"))
        return LARGEST if total is None else total
    if total not in (None, archive.size):
        raise CaptioningError(_replaced(archive, f"has {total:,} bytes, expected are {archive.size:,}"))
    return archive.size


def _replaced(archive: Archive, found: str) -> str:
    return (
        f"{archive.url} {found}: it was replaced there. If you trust it, set the size and the checksum of "
        "data.archives, to null if you do not know them"
    )


def _refused(archive: Archive, part: Path, done: int, error: HTTPError) -> None:
    """Returns where nothing is missing of the file.

    Raises:
        Interrupted: another try may help.
        Unavailable: none will.
    """
    answers = f"it answers {quoted(f'{error.code} {error.reason}')}"
    if error.code == 416:
        if done and error.headers.get("Content-Range") == f"bytes */{done}":
            return
        part.unlink(missing_ok=True)  # it is longer than the file
    elif error.code not in TRANSIENT:
        raise Unavailable(f"{archive.name} does not come from {archive.host}: {answers}") from error
    raise Interrupted(answers) from error
