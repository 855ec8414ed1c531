"""Servers that say anything: the file that was meant, or a sentence."""

import hashlib
import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server import RawSite, serving_bytes

from captioning.errors import CaptioningError
from captioning.transfer.fetch import Connection, RemoteFile, fetch

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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets that requests leaves open
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
            file = RemoteFile(url=f"{site.address}/a.zip", size=size, checksum=checksum)
            fetch(file, path, Connection(timeout=5, retries=1, backoff=0))
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
