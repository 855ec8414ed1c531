"""Downloads from a server on a real socket that break, are answered badly, or are not what was
expected.
"""

import copy
import hashlib
import random

import pytest
from refusals import refuses
from server import Site, serving

from captioning.pretrained import fetch as module
from captioning.pretrained.fetch import Connection, RemoteFile, Unavailable, fetch

CONTENT, OTHER = random.Random(0).randbytes(5000), random.Random(1).randbytes(5000)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest().upper()}"
QUICK = Connection(timeout=10, retries=2, backoff=0)


@pytest.fixture
def site():
    with serving(Site(files={"/a.zip": CONTENT})) as site:
        yield site


def fetched(site, folder, size=5000, checksum=SHA256, connection=QUICK):
    """The file, which must be alone in its folder then."""
    file = RemoteFile(url=f"{site.address}/a.zip", size=size, checksum=checksum)
    fetch(file, folder / "a.zip", connection)
    assert [path.name for path in folder.iterdir()] == ["a.zip"]
    return (folder / "a.zip").read_bytes()


KNOWN = (5000, SHA256)


@pytest.mark.parametrize(
    "how, given, asked",
    [
        ({"breaks": [1200, 800, 0]}, KNOWN, [0, 1200, 2000, 2000]),
        ({"breaks": [1200, 800, 0]}, (None, MD5), [0, 1200, 2000, 2000]),
        ({"breaks": [1200], "ranges": False}, KNOWN, [0, 1200]),
        ({"breaks": [9], "redirects": {"/a.zip": "/b"}, "files": {"/b": CONTENT}}, KNOWN, [0, 9]),
        ({"stall": 2000}, (None, SHA256), [0, 2000, 4000]),  # silence counts as broken
        ({"answers": [503, 429]}, KNOWN, [0, 0, 0]),
    ],
    ids=range(6),
)
def test_a_broken_connection_is_resumed_where_it_broke(site, tmp_path, how, given, asked):
    vars(site).update(copy.deepcopy(how))
    assert fetched(site, tmp_path, *given, Connection(timeout=0.5, retries=2, backoff=0)) == CONTENT
    assert [r for _, r in site.requests] == [f"bytes={n}-" if n else None for n in asked]


def test_a_later_call_resumes(site, tmp_path):
    site.breaks = [1200]
    with pytest.raises(Unavailable):
        fetched(site, tmp_path, connection=Connection(timeout=10, retries=0, backoff=0))
    assert (tmp_path / "a.zip.part").read_bytes() == CONTENT[:1200]
    assert fetched(site, tmp_path) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=1200-"]
    for size in (5000, None):
        for here in (CONTENT, CONTENT + b"more"):  # complete, or too long
            (tmp_path / "a.zip.part").write_bytes(here)
            assert fetched(site, tmp_path, size) == CONTENT


MIXED = hashlib.sha256(OTHER[:1200] + CONTENT[1200:]).hexdigest()


@pytest.mark.parametrize(
    "how, begun, given, named",
    [
        ({"answers": [500] * 3}, b"", {}, "500"),
        ({"answers": [404]}, b"", {}, "404"),
        # never more than before
        ({"ranges": False, "breaks": [1200, 1100, 1200]}, b"", {}, "1200 bytes read"),
        ({}, OTHER[:1200], {}, MIXED),  # the file was replaced meanwhile
        ({}, b"", {"checksum": f"sha256:{64 * '0'}"}, SHA256),
        ({}, b"", {"size": 9000}, "5,000 bytes.*9,000"),
        ({"lengths": False}, b"", {"size": 9000}, "5,000 bytes instead of 9,000"),
        ({"lengths": False}, b"", {"size": 4000}, "5,000 bytes instead of 4,000"),
        # the largest that is taken of unknown size
        ({}, b"", {"size": None}, "5,000 bytes.*3,000"),
        ({"lengths": False}, b"", {"size": None}, "5,000 bytes instead of 3,000"),
    ],
    ids=range(10),
)
def test_a_server_is_given_up_and_other_files_are_refused_and_deleted(
    how, begun, given, named, site, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "LARGEST_DOWNLOAD", 3000)
    vars(site).update(copy.deepcopy(how))
    if begun:
        (tmp_path / "a.zip.part").write_bytes(begun)
    with refuses(named) as refused:
        fetched(site, tmp_path, **given)
    assert not (tmp_path / "a.zip").exists()
    assert isinstance(refused.value, Unavailable) or not (tmp_path / "a.zip.part").exists()
