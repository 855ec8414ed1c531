"""Servers that say anything, or never stop: the file that was meant, or a sentence."""

import hashlib
import itertools
import random
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server import RawSite, serving_bytes

from captioning.errors import CaptioningError
from captioning.transfer.archive import Archive
from captioning.transfer.fetch import Connection, fetch

CONTENT = random.Random(0).randbytes(50)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"

anything = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=12)
numbers = st.one_of(
    st.integers(-2, 60).map(str),
    st.sampled_from(["50", "9" * 30, "9" * 5000, "\xb2", "5_0", "+50", "0x32", "50, 50"]),
    anything,
)
places = st.one_of(
    st.builds("bytes {}-{}/{}".format, numbers, numbers, numbers | st.just("*")), st.just("bytes 20-49/50"), anything
)
addresses = st.one_of(
    st.just("/b.zip"),
    st.sampled_from(
        [
            *("ftp://127.0.0.1:1/a.zip", "file:///etc/passwd", "data:,abc", "http://[", "http://[::1", "http:///a"),
            *(
                "http://127.0.0.1:99999/a",
                "http://127.0.0.1:x/a",
                "http://127.0.0.1:-1/",
                "http://\x00/",
                "//",
                "http:",
            ),
            *(f"http://{'a' * 70}.localhost/", "http://127.0.0.1:1/", "gopher://x", "https://127.0.0.1:1/", "/" * 5000),
        ]
    ),
    anything.map("/{}".format),
)
headers = st.one_of(
    st.tuples(st.just("Content-Length"), numbers | st.just("50")),
    st.tuples(st.just("Content-Range"), places),
    st.tuples(st.just("Location"), addresses),
    st.tuples(st.just("Transfer-Encoding"), st.just("chunked") | anything),
    st.tuples(
        st.sampled_from(["ETag", "Last-Modified"]), st.just('"a"') | anything | st.just("a\r\n b") | st.just("e" * 5000)
    ),
    st.tuples(anything, anything),
)
statuses = st.one_of(
    st.sampled_from(["200 OK", "206 Partial Content", "302 Found", "416 Range Not Satisfiable", "204 No Content"]),
    st.sampled_from(["100 Continue", "304 Not Modified", "503 " + "so " * 2000, "99999 x", "abc", "", "301"]),
    st.integers(100, 999).map(str),
)
bodies = st.one_of(
    st.sampled_from(
        [CONTENT, CONTENT[20:], b"", CONTENT * 2, b"32\r\n" + CONTENT + b"\r\n0\r\n\r\n", b"-5\r\n", b"zz\r\n"]
    ),
    st.integers(0, 50).map(lambda size: CONTENT[:size]),
    st.binary(max_size=60),
)


def answer(status: str, headers: list[tuple[str, str]], body: bytes) -> list[bytes]:
    head = "".join(f"{line}\r\n" for line in [f"HTTP/1.1 {status}", *map(": ".join, headers)])
    return [head.encode("latin-1") + b"\r\n" + body]


answers = st.builds(answer, statuses, st.lists(headers, max_size=4), bodies) | st.binary(max_size=80).map(lambda b: [b])


@pytest.fixture(scope="module")
def site() -> Iterator[RawSite]:
    with serving_bytes() as site:
        yield site


@given(st.lists(answers, min_size=1, max_size=3), st.none() | st.just(50), st.none() | st.just(SHA256), st.booleans())
def test_any_answer(
    site: RawSite, answers: list[Iterable[bytes]], size: int | None, checksum: str | None, begun: bool
) -> None:
    site.answers[:] = answers
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "a.zip")
        if begun:
            path.with_name("a.zip.part").write_bytes(CONTENT[:20])
            path.with_name("a.zip.part.version").write_bytes(b"\xff\n")
        try:
            fetch(Archive(f"{site.address}/a.zip", {}, size, checksum), path, Connection(5, retries=1, backoff=0))
        except CaptioningError as error:
            said = str(error)
            assert "\n" not in said
            assert len(said) < 600
            assert not path.exists()
        else:
            content = path.read_bytes()
            assert content == CONTENT or checksum is None
            assert len(content) == (size or len(content))
        assert {file.name for file in Path(place).iterdir()} <= {"a.zip", "a.zip.part", "a.zip.part.version"}


def slowly(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        time.sleep(0.02)


def one_by_one(content: bytes) -> Iterator[bytes]:
    return (bytes([byte]) for byte in itertools.chain(content, itertools.repeat(ord("x"))))


OK = b"HTTP/1.1 200 OK\r\n"
FOR_EVER = {
    "a header": slowly(one_by_one(OK)),
    "headers that say to wait": itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "a byte now and then": slowly(one_by_one(OK + b"Content-Length: 1000000000\r\n\r\n")),
    "what follows the last chunk": itertools.chain(
        [OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"], itertools.repeat(b"x: y\r\n" * 1000)
    ),
}


@pytest.mark.parametrize("kind", FOR_EVER)
def test_what_never_stops_and_never_brings_the_file(tmp_path: Path, kind: str) -> None:
    with serving_bytes(FOR_EVER[kind]) as site, pytest.raises(CaptioningError, match=r"less than 1000 bytes a second"):
        fetch(Archive(f"{site.address}/a.zip", {}), tmp_path / "a.zip", Connection(0.3, retries=0, backoff=0))


@pytest.mark.parametrize("head", [b"", b"Transfer-Encoding: chunked\r\n"])
def test_more_than_was_said(tmp_path: Path, head: bytes) -> None:
    endless = itertools.chain([OK + head + b"\r\n"], itertools.repeat(b"1000\r\n" + bytes(4096) + b"\r\n"))
    with (
        serving_bytes(endless) as site,
        pytest.raises(CaptioningError, match=r"sends more than 2,000 bytes: it was rep"),
    ):
        fetch(Archive(f"{site.address}/a.zip", {}, 2000), tmp_path / "a.zip", Connection(10, retries=0, backoff=0))
    assert {path.name for path in tmp_path.iterdir()} <= {"a.zip.part.version"}


def test_more_than_is_allowed_where_nothing_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.transfer.fetch.LARGEST", 10**6)
    endless = itertools.chain([OK + b"\r\n"], itertools.repeat(bytes(4096)))
    huge = [OK + b"Content-Length: 1000001\r\n\r\n"]
    for answer, message in ((endless, "sends more than 1,000,000 bytes"), (huge, "has 1,000,001 bytes, allowed are")):
        with serving_bytes(answer) as site, pytest.raises(CaptioningError, match=message):
            fetch(Archive(f"{site.address}/a.zip", {}), tmp_path / "a.zip", Connection(10, retries=0, backoff=0))


def test_a_server_that_brings_a_little_each_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioning.transfer.fetch.MOST_TRIES", 7)
    rest = ([f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {i}-9/10\r\n\r\nx".encode()] for i in range(1, 10))
    with (
        serving_bytes([OK + b"Content-Length: 10\r\n\r\nx"], *rest) as site,
        pytest.raises(CaptioningError, match=r"after 7 of 10 bytes"),
    ):
        fetch(Archive(f"{site.address}/a.zip", {}), tmp_path / "a.zip", Connection(10, retries=1, backoff=0))
