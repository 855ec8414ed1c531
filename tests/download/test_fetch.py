"""Downloads from a server on a real socket that break, are answered badly, or are not what was
expected.
"""

import copy
import hashlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import Site, serving

from captioning.download import fetch as module
from captioning.download.fetch import Connection, RemoteFile, Unavailable, fetch
from captioning.errors import CaptioningError

CONTENT, OTHER = random.Random(0).randbytes(5000), random.Random(1).randbytes(5000)
SHA256, MD5 = (
    f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",
    f"md5:{hashlib.md5(CONTENT).hexdigest().upper()}",
)
QUICK = Connection(timeout=10, retries=2, backoff=0)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site(files={"/a.zip": CONTENT})) as site:
        yield site


def fetched(
    site: Site,
    folder: Path,
    size: int | None = 5000,
    checksum: str | None = SHA256,
    connection: Connection = QUICK,
) -> bytes:
    """The file, which must be alone in its folder then."""
    fetch(
        RemoteFile(url=f"{site.address}/a.zip", size=size, checksum=checksum),
        folder / "a.zip",
        connection,
    )
    assert [path.name for path in folder.iterdir()] == ["a.zip"]
    return (folder / "a.zip").read_bytes()


RANGES = {"breaks": [1200, 800, 0]}


@pytest.mark.parametrize(
    ("how", "given", "asked"),
    [
        *(
            (RANGES, (size, checksum), [0, 1200, 2000, 2000])
            for size, checksum in ((5000, SHA256), (None, MD5))
        ),
        (RANGES, (None, None), [0, 1200, 2000, 2000]),
        ({"breaks": [1200], "names": False}, (5000, SHA256), [0, 1200]),
        ({"breaks": [1200], "ranges": False}, (5000, SHA256), [0, 1200]),
        (
            {"breaks": [1200], "redirects": {"/a.zip": "/b"}, "files": {"/b": CONTENT}},
            (5000, SHA256),
            [0, 1200],
        ),
        ({"stall": 2000}, (None, SHA256), [0, 2000, 4000]),  # silence counts as broken
        ({"answers": [503, 429]}, (5000, SHA256), [0, 0, 0]),
    ],
    ids=range(8),
)
def test_a_broken_connection_is_resumed_where_it_broke(
    site: Site,
    tmp_path: Path,
    how: dict[str, Any],
    given: tuple[int | None, str | None],
    asked: list[int],
) -> None:
    vars(site).update(copy.deepcopy(how))
    assert fetched(site, tmp_path, *given, Connection(timeout=0.5, retries=2, backoff=0)) == CONTENT
    etag = f'"{hashlib.md5(CONTENT).hexdigest()}"' if site.names else None
    wanted = [(f"bytes={place}-", etag) if place else (None, None) for place in asked]
    assert [(place, condition) for _, place, condition in site.requests] == wanted


@pytest.mark.parametrize("first", [CONTENT, OTHER], ids=["the same", "another"])
def test_a_later_call_resumes_unless_the_file_has_changed(
    site: Site, tmp_path: Path, first: bytes
) -> None:
    site.files["/a.zip"], site.breaks = first, [1200]
    with pytest.raises(Unavailable):
        fetched(site, tmp_path, connection=Connection(timeout=10, retries=0, backoff=0))
    assert (tmp_path / "a.zip.part").read_bytes() == first[:1200]
    site.files["/a.zip"] = CONTENT
    assert fetched(site, tmp_path) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=1200-"]
    for size, here in itertools.product(
        (5000, None), (CONTENT, CONTENT + b"more")
    ):  # complete, or too long
        (tmp_path / "a.zip.part").write_bytes(here)
        assert fetched(site, tmp_path, size) == CONTENT


@pytest.mark.parametrize(
    ("how", "begun", "given", "named"),
    [
        ({"answers": [500] * 3}, b"", {}, "500"),
        ({"answers": [404]}, b"", {}, "404"),
        (
            {"ranges": False, "breaks": [1200, 1100, 1200]},
            b"",
            {},
            "1200 bytes read",
        ),  # never more than before
        (
            {},
            OTHER[:1200],
            {},
            hashlib.sha256(OTHER[:1200] + CONTENT[1200:]).hexdigest(),
        ),  # no name tells the change
        ({}, b"", {"checksum": f"sha256:{64 * '0'}"}, SHA256),
        ({}, b"", {"size": 9000}, "5,000 bytes.*9,000"),
        ({"lengths": False}, b"", {"size": 9000}, "5,000 bytes instead of 9,000"),
        ({"lengths": False}, b"", {"size": 4000}, "5,000 bytes instead of 4,000"),
        (
            {},
            b"",
            {"size": None},
            "5,000 bytes.*3,000",
        ),  # the largest that is taken of unknown size
        ({"lengths": False}, b"", {"size": None}, "5,000 bytes instead of 3,000"),
    ],
    ids=range(10),
)
def test_a_server_is_given_up_and_other_files_are_refused_and_deleted(
    how: dict[str, Any],
    begun: bytes,
    given: dict[str, Any],
    named: str,
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 3000)
    vars(site).update(copy.deepcopy({"names": False, **how}))
    if begun:
        (tmp_path / "a.zip.part").write_bytes(begun)
    with pytest.raises(CaptioningError, match=named) as refused:
        fetched(site, tmp_path, **given)
    assert not site.answers
    assert not (tmp_path / "a.zip").exists()
    assert isinstance(refused.value, Unavailable) or not (tmp_path / "a.zip.part").exists()
