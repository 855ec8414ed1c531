"""Downloads from a server on a real socket that break, are answered badly, or are not what was expected."""

import copy
import hashlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import Site, serving

from captioning.download import fetch as module
from captioning.download.fetch import Connection, RemoteFile, Unavailable, fetch
from captioning.errors import CaptioningError

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


@pytest.mark.parametrize(("size", "checksum"), [(5000, SHA256), (None, MD5), (None, None)])
@pytest.mark.parametrize(
    ("how", "asked"),
    [
        ({"breaks": [1200, 800, 0]}, [0, 1200, 2000, 2000]),
        ({"breaks": [1200], "names": False}, [0, 1200]),
        ({"breaks": [1200], "ranges": False}, [0, 1200]),
        ({"breaks": [1200], "redirects": {"/a.zip": "/b"}, "files": {"/b": CONTENT}}, [0, 1200]),
        ({"stall": 2000}, [0, 2000, 4000]),  # silence counts as broken
        ({"answers": [503, 429]}, [0, 0, 0]),
    ],
    ids=["breaks", "no names", "no ranges", "redirect", "silence", "answers"],
)
def test_a_broken_connection_is_resumed_where_it_broke(
    site: Site, tmp_path: Path, how: dict[str, Any], asked: list[int], size: int | None, checksum: str | None
) -> None:
    for name, value in how.items():
        setattr(site, name, copy.copy(value))
    assert fetched(site, tmp_path, size, checksum, Connection(timeout=0.5, retries=2, backoff=0)) == CONTENT
    assert [asked for _, asked, _ in site.requests] == [f"bytes={place}-" if place else None for place in asked]
    etag = f'"{hashlib.md5(CONTENT).hexdigest()}"' if site.names else None
    assert [condition for _, _, condition in site.requests] == [etag if place else None for place in asked]


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


@pytest.mark.parametrize("size", [5000, None])
@pytest.mark.parametrize("here", [CONTENT, CONTENT + b"more"])
def test_parts_that_are_complete_or_too_long(site: Site, tmp_path: Path, size: int | None, here: bytes) -> None:
    (tmp_path / "a.zip.part").write_bytes(here)
    assert fetched(site, tmp_path, size) == CONTENT


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"answers": [500] * 3}, "500"),
        ({"answers": [404]}, "404"),
        ({"answers": [403]}, "403"),
        ({"ranges": False, "breaks": [1200, 1100, 1200]}, "1200 bytes read"),  # never more than before
    ],
)
def test_a_server_is_given_up(site: Site, tmp_path: Path, how: dict[str, Any], named: str) -> None:
    for name, value in how.items():
        setattr(site, name, copy.copy(value))
    with pytest.raises(Unavailable, match=named):
        fetched(site, tmp_path)
    assert not site.answers
    assert not (tmp_path / "a.zip").exists()


@pytest.mark.parametrize(
    ("begun", "given", "named"),
    [
        (OTHER[:1200], {}, hashlib.sha256(OTHER[:1200] + CONTENT[1200:]).hexdigest()),  # no name tells the change
        (b"", {"checksum": f"sha256:{64 * '0'}"}, SHA256),
        (b"", {"size": 9000}, "5,000 bytes.*9,000"),
        (b"", {"size": 9000, "lengths": False}, "5,000 bytes instead of 9,000"),
        (b"", {"size": 4000, "lengths": False}, "5,000 bytes instead of 4,000"),
        (b"", {"size": None, "largest": 3000}, "5,000 bytes.*3,000"),
        (b"", {"size": None, "largest": 3000, "lengths": False}, "5,000 bytes instead of 3,000"),
    ],
    ids=range(7),
)
def test_other_files_are_refused_and_deleted(
    begun: bytes, given: dict[str, Any], named: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", given.pop("largest", 10**6))
    site.names, site.lengths = False, given.pop("lengths", True)
    if begun:
        (tmp_path / "a.zip.part").write_bytes(begun)
    with pytest.raises(CaptioningError, match=named):
        fetched(site, tmp_path, **given)
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob("*.zip"))


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as closed:  # bound, so that nobody else gets the port meanwhile, and not listening
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(Unavailable, match=rf"a\.zip from {host}: Connection refused"):
            fetch(RemoteFile(url=f"http://{host}/a.zip"), tmp_path / "a.zip", QUICK)
