"""Transfers that break, from a server on a real socket."""

import hashlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import Site, serving

from captioning.errors import CaptioningError
from captioning.transfer.archive import Archive
from captioning.transfer.fetch import Connection, fetch
from captioning.transfer.http import Unavailable

CONTENT = random.Random(0).randbytes(5000)
OTHER = random.Random(1).randbytes(5000)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
QUICK = Connection(timeout=10, retries=2, backoff=0)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site(files={"/a.zip": CONTENT})) as site:
        yield site


def fetched(
    site: Site, folder: Path, size: int | None = 5000, checksum: str | None = SHA256, connection: Connection = QUICK
) -> bytes:
    """The file, which must be alone in its folder then."""
    fetch(Archive(f"{site.address}/a.zip", {}, size, checksum), folder / "a.zip", connection)
    assert [path.name for path in folder.iterdir()] == ["a.zip"]
    return (folder / "a.zip").read_bytes()


@pytest.mark.parametrize("size", [5000, None])
@pytest.mark.parametrize("checksum", [SHA256, f"md5:{hashlib.md5(CONTENT).hexdigest().upper()}", None])
def test_whole(site: Site, tmp_path: Path, size: int | None, checksum: str | None) -> None:
    assert fetched(site, tmp_path, size, checksum) == CONTENT
    assert site.ranges_asked("/a.zip") == [None]


@pytest.mark.parametrize("size", [5000, None])
def test_a_broken_connection_goes_on_where_it_broke(site: Site, tmp_path: Path, size: int | None) -> None:
    site.breaks = [1200, 800, 0]
    assert fetched(site, tmp_path, size) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=1200-", "bytes=2000-", "bytes=2000-"]
    etag = f'"{hashlib.md5(CONTENT).hexdigest()}"'
    assert [condition for _, _, condition in site.requests] == [None, etag, etag, etag]


def test_a_later_call_goes_on(site: Site, tmp_path: Path) -> None:
    site.breaks = [1200]
    with pytest.raises(Unavailable, match=r"a\.zip does not come from 127.*ended after 1,200 of 5,000 bytes"):
        fetched(site, tmp_path, connection=Connection(timeout=10, retries=0, backoff=0))
    assert (tmp_path / "a.zip.part").read_bytes() == CONTENT[:1200]
    assert fetched(site, tmp_path) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=1200-"]


def test_silence_counts_as_broken(site: Site, tmp_path: Path) -> None:
    site.stall = 2000
    assert fetched(site, tmp_path, connection=Connection(timeout=2, retries=1, backoff=0)) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=2000-", "bytes=4000-"]


def test_without_ranges_it_begins_anew(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.ranges = False
    site.breaks = [1200]
    assert fetched(site, tmp_path) == CONTENT
    assert site.ranges_asked("/a.zip") == [None, "bytes=1200-"]
    assert "a.zip begins anew" in capsys.readouterr().err


def test_without_ranges_a_connection_that_always_breaks_is_given_up(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.breaks = [1200, 1100, 1200, 5000]
    with pytest.raises(Unavailable):
        fetched(site, tmp_path)


def test_a_file_that_changed_meanwhile_begins_anew(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = OTHER
    site.breaks = [1200]
    with pytest.raises(Unavailable):
        fetched(site, tmp_path, connection=Connection(timeout=10, retries=0, backoff=0))
    site.files["/a.zip"] = CONTENT
    assert fetched(site, tmp_path) == CONTENT


def test_a_change_that_the_server_does_not_tell_is_seen_by_the_checksum(site: Site, tmp_path: Path) -> None:
    site.names = False
    (tmp_path / "a.zip.part").write_bytes(OTHER[:1200])
    mixed = hashlib.sha256(OTHER[:1200] + CONTENT[1200:]).hexdigest()
    with pytest.raises(CaptioningError, match=rf"a\.zip has the sha256 {mixed}, expected is {SHA256[7:]}.*deleted"):
        fetched(site, tmp_path)
    assert not list(tmp_path.iterdir())
    assert fetched(site, tmp_path) == CONTENT


def test_a_wrong_checksum(site: Site, tmp_path: Path) -> None:
    expected = hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(CaptioningError, match=rf"the sha256 {SHA256[7:]}, expected is {expected}"):
        fetched(site, tmp_path, checksum=f"sha256:{expected}")
    assert not (tmp_path / "a.zip").exists()
    assert not (tmp_path / "a.zip.part").exists()


def test_another_size_is_refused_before_it_is_downloaded(site: Site, tmp_path: Path) -> None:
    with pytest.raises(CaptioningError, match=r"has 5,000 bytes, expected are 9,000: it was replaced"):
        fetched(site, tmp_path, size=9000)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [5000, None])
@pytest.mark.parametrize(("here", "requests"), [(CONTENT, 0), (CONTENT + b"more", 1)])
def test_parts_that_are_whole_or_too_long(
    site: Site, tmp_path: Path, size: int | None, here: bytes, requests: int
) -> None:
    (tmp_path / "a.zip.part").write_bytes(here)
    assert fetched(site, tmp_path, size) == CONTENT
    if size is not None:
        assert len(site.requests) == requests


def test_redirects_are_followed_with_the_range(site: Site, tmp_path: Path) -> None:
    site.files = {"/elsewhere": CONTENT}
    site.redirects = {"/a.zip": "/elsewhere"}
    site.breaks = [1200]
    assert fetched(site, tmp_path) == CONTENT
    assert site.ranges_asked("/elsewhere") == [None, "bytes=1200-"]


def test_answers_that_may_pass_are_waited_for(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.answers = [503, 429]
    assert fetched(site, tmp_path) == CONTENT
    assert "it answers 503 Service Unavailable; again in 0 s" in capsys.readouterr().err
    site.answers = [500] * 4
    (tmp_path / "a.zip").unlink()
    with pytest.raises(Unavailable, match="answers 500 Internal Server Error"):
        fetched(site, tmp_path)
    assert site.answers == [500]


@pytest.mark.parametrize(("code", "reason"), [(404, "Not Found"), (403, "Forbidden")])
def test_answers_that_will_not_pass_are_not_repeated(site: Site, tmp_path: Path, code: int, reason: str) -> None:
    site.answers = [code]
    with pytest.raises(Unavailable, match=f"it answers {code} {reason}"):
        fetched(site, tmp_path)
    assert len(site.requests) == 1
    assert not list(tmp_path.iterdir())


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as closed:  # bound, so that nobody else gets the port meanwhile, and not listening
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(Unavailable, match=rf"a\.zip does not come from {host}: Connection refused"):
            fetch(Archive(f"http://{host}/a.zip", {}), tmp_path / "a.zip", QUICK)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "ftp://host/a.zip"}, "url=ftp://host/a.zip is not allowed"),
        ({"url": "http://host/"}, "it must be the http or https address of a file"),
        ({"size": 0}, "size=0 is not allowed"),
        ({"checksum": "0" * 64}, "it must be sha256:HEX, md5:HEX or null"),
        ({"checksum": f"sha256:{'0' * 32}"}, "it must be sha256:HEX, md5:HEX or null"),
        ({"checksum": f"crc32:{'0' * 8}"}, "it must be sha256:HEX, md5:HEX or null"),
    ],
)
def test_archives_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(CaptioningError, match=message):
        Archive(**{"url": "http://host/a.zip", "members": {}} | settings)
