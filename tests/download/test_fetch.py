"""Transfers that break, from a server on a real socket."""

import hashlib
import itertools
import os
import random
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from server import Site, serving, serving_bytes

from captioning.errors import CaptioningError
from captioning.transfer.fetch import Connection, RemoteFile, Unavailable, fetch

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets left open
CONTENT, OTHER = random.Random(0).randbytes(5000), random.Random(1).randbytes(5000)
SHA256, MD5 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", f"md5:{hashlib.md5(CONTENT).hexdigest().upper()}"
QUICK, ONCE = (Connection(timeout=10, retries=retries, backoff=0) for retries in (2, 0))


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site(files={"/a.zip": CONTENT})) as site:
        yield site


def fetched(
    site: Site, folder: Path, size: int | None = 5000, checksum: str | None = SHA256, connection: Connection = QUICK
) -> bytes:
    """The file, which must be alone in its folder then."""
    fetch(RemoteFile(url=f"{site.address}/a.zip", size=size, checksum=checksum), folder / "a.zip", connection)
    assert [path.name for path in folder.iterdir()] == ["a.zip"]
    return (folder / "a.zip").read_bytes()


@pytest.mark.parametrize("size", [5000, None])
@pytest.mark.parametrize("checksum", [SHA256, MD5, None])
def test_complete(site: Site, tmp_path: Path, size: int | None, checksum: str | None) -> None:
    assert fetched(site, tmp_path, size, checksum) == CONTENT
    assert site.ranges_asked("/a.zip") == [None]


@pytest.mark.parametrize("size", [5000, None])
def test_a_broken_connection_is_resumed_where_it_broke(site: Site, tmp_path: Path, size: int | None) -> None:
    site.breaks = [1200, 800, 0]
    assert fetched(site, tmp_path, size) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=1200-", "bytes=2000-", "bytes=2000-"]
    etag = f'"{hashlib.md5(CONTENT).hexdigest()}"'
    assert [condition for _, _, condition in site.requests] == [None, etag, etag, etag]


@pytest.mark.parametrize("changed", [False, True])
def test_a_later_call_resumes_unless_the_file_has_changed(site: Site, tmp_path: Path, changed: bool) -> None:
    first = OTHER if changed else CONTENT
    site.files["/a.zip"], site.breaks = first, [1200]
    with pytest.raises(Unavailable):
        fetched(site, tmp_path, connection=ONCE)
    assert (tmp_path / "a.zip.part").read_bytes() == first[:1200]
    site.files["/a.zip"] = CONTENT
    assert fetched(site, tmp_path) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=1200-"]


def test_silence_counts_as_broken(site: Site, tmp_path: Path) -> None:
    site.stall = 2000
    assert fetched(site, tmp_path, connection=Connection(timeout=1, retries=1, backoff=0)) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=2000-", "bytes=4000-"]


def test_without_ranges_it_starts_again(site: Site, tmp_path: Path) -> None:
    site.ranges, site.breaks = False, [1200]
    assert fetched(site, tmp_path) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=1200-"]
    (tmp_path / "a.zip").unlink()
    site.breaks = [1200, 1100, 1200, 5000]  # never more than before
    with pytest.raises(Unavailable):
        fetched(site, tmp_path)


def test_a_change_that_the_server_does_not_tell_is_seen_by_the_checksum(site: Site, tmp_path: Path) -> None:
    site.names = False
    (tmp_path / "a.zip.part").write_bytes(OTHER[:1200])
    mixed = hashlib.sha256(OTHER[:1200] + CONTENT[1200:]).hexdigest()
    with pytest.raises(CaptioningError, match=rf"{mixed}.*{SHA256[7:]}"):
        fetched(site, tmp_path)
    assert not list(tmp_path.iterdir())
    assert fetched(site, tmp_path) == CONTENT


def test_another_size_is_refused_before_it_is_downloaded(site: Site, tmp_path: Path) -> None:
    with pytest.raises(CaptioningError, match=r"5,000 bytes.*9000"):
        fetched(site, tmp_path, size=9000)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [5000, None])
@pytest.mark.parametrize(("here", "requests"), [(CONTENT, 0), (CONTENT + b"more", 1)])
def test_parts_that_are_complete_or_too_long(
    site: Site, tmp_path: Path, size: int | None, here: bytes, requests: int
) -> None:
    (tmp_path / "a.zip.part").write_bytes(here)
    assert fetched(site, tmp_path, size) == CONTENT
    if size is not None:
        assert len(site.requests) == requests


def test_redirects_are_followed_with_the_range(site: Site, tmp_path: Path) -> None:
    site.files, site.redirects, site.breaks = {"/elsewhere": CONTENT}, {"/a.zip": "/elsewhere"}, [1200]
    assert fetched(site, tmp_path) == CONTENT
    assert site.ranges_asked("/elsewhere") == [None, "bytes=1200-"]


def test_some_answers_are_worth_another_try(site: Site, tmp_path: Path) -> None:
    site.answers = [503, 429]
    assert fetched(site, tmp_path) == CONTENT
    (tmp_path / "a.zip").unlink()
    for codes, left in (([500] * 4, [500]), ([404] * 2, [404]), ([403], [])):
        site.answers = codes
        with pytest.raises(Unavailable, match=str(codes[0])):
            fetched(site, tmp_path)
        assert site.answers == left
        assert not list(tmp_path.iterdir())


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as closed:  # bound, so that nobody else gets the port meanwhile, and not listening
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(Unavailable, match=rf"a\.zip from {host}: Connection refused"):
            fetch(RemoteFile(url=f"http://{host}/a.zip"), tmp_path / "a.zip", QUICK)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX")
def test_a_pipe_is_not_waited_for(site: Site, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.zip.part")
    with pytest.raises(FileExistsError, match="not a regular file"):
        fetched(site, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("url", url) for url in ("ftp://host/a.zip", "http://host/", "http://host/..", "http://[::1/a", "a.zip")),
        *(("size", size) for size in (0, "big", 1.5)),
        *(("checksum", checksum) for checksum in ("0" * 64, f"sha256:{'0' * 32}", f"crc32:{'0' * 8}")),
    ],
)
def test_files_that_cannot_be(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        RemoteFile(**{"url": "http://host/a.zip"} | {key: value})
    assert [error["loc"] for error in refused.value.errors()] == [(key,)]


def slowly(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        time.sleep(0.02)


OK = b"HTTP/1.1 200 OK\r\n"
FOR_EVER = {
    "a header": lambda: slowly(bytes([byte]) for byte in itertools.chain(OK, itertools.repeat(ord("x")))),
    "headers that say to wait": lambda: slowly(itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")),
    "a little now and then": lambda: itertools.chain(
        [OK + b"Content-Length: 1000000000\r\n\r\n"], slowly(itertools.repeat(bytes(1000)))
    ),
    "more than it announced": lambda: itertools.chain(
        [OK + b"Transfer-Encoding: chunked\r\n\r\n"], itertools.repeat(b"1000\r\n" + bytes(4096) + b"\r\n")
    ),
    "without an end": lambda: itertools.chain([OK + b"\r\n"], itertools.repeat(bytes(4096))),
    "a size beyond all bounds": lambda: [OK + b"Content-Length: 1000001\r\n\r\n"],
}


@pytest.mark.parametrize("kind", FOR_EVER)
def test_what_never_stops_has_an_end(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = {"more than it announced": 2000, "a little now and then": 10**9}.get(kind)
    monkeypatch.setattr("captioning.transfer.fetch.MAX_BYTES", size or 10**6)
    hasty = Connection(timeout=0.3, retries=0, backoff=0)
    with serving_bytes(FOR_EVER[kind]()) as site, pytest.raises(CaptioningError):
        fetch(RemoteFile(url=f"{site.address}/a.zip", size=size), tmp_path / "a.zip", hasty, longest=0.5)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 10**6


def test_a_server_that_brings_a_little_each_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.transfer.fetch.MAX_TRIES", 7)
    rest = ([f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {i}-9/10\r\n\r\nx".encode()] for i in range(1, 10))
    with (
        serving_bytes([OK + b"Content-Length: 10\r\n\r\nx"], *rest) as site,
        pytest.raises(CaptioningError, match=r"after 7 of 10 bytes"),
    ):
        fetch(RemoteFile(url=f"{site.address}/a.zip"), tmp_path / "a.zip", QUICK)
