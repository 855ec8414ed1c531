"""Captioners of the hub: names, its own cache, and servers in its place that say anything, or never stop."""

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import hub
import huggingface_hub.constants
import pytest
from hub import COMMIT, Hub, ask_only
from huggingface_hub import hf_hub_download
from hypothesis import given
from hypothesis import strategies as st
from server import serving_bytes
from support import read_or_refused
from test_any_answer import answer as answered
from test_any_answer import anything, bodies, headers, numbers, statuses

from captioning.errors import CaptioningError
from captioning.transfer.fetch import Connection
from captioning.transfer.named import FILE, Repository, fetched, from_hub, repository

CONTENT = b"a captioner"
SMALL = Repository("somebody/small", None)
ONCE = Connection(timeout=5, retries=0, backoff=0)
TOKEN = "hf_of_somebody"
DESCRIBED = f"HTTP/1.1 200 OK\r\nX-Repo-Commit: {COMMIT}\r\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nothing in it but the cache, once there is one."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "a" / "b" / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return tmp_path


def outside(home: Path) -> list[Path]:
    """The files that are not in the cache."""
    return [path for path in home.rglob("*") if path.is_file() and home / "a" / "b" / "cache" not in path.parents]


@pytest.mark.parametrize(
    "name",
    [
        *("hf:a/b@../../x", "hf:a/b@/etc/x", "hf:a/b@x/../../y", "hf:a/b@x//y", "hf:a/b@.", "hf:a/b@x--y", "hf:a/b@x/"),
        *("hf:a--b/c", "hf:a/b.git", "hf:../b", "hf:a/..", "hf:-a/b", f"hf:{97 * 'a'}/b", "hf:\u00e9/b", "hf:a/b\n"),
    ],
)
def test_names_that_the_hub_does_not_have(name: str) -> None:
    assert repository(name) is None
    with pytest.raises(CaptioningError, match=r"checkpoint="):
        fetched(name)


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/1", COMMIT])
def test_names_that_it_has(revision: str) -> None:
    assert repository(f"hf:some-body/small_1.0@{revision}") == ("some-body/small_1.0", revision)


def test_the_cache_is_shared_with_the_hubs_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch):
        theirs = hf_hub_download(SMALL.repo_id, FILE)
    assert from_hub(SMALL, ONCE) == Path(theirs)  # the hub is gone
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", f"{huggingface_hub.constants.HF_HUB_CACHE}-anew")
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch):
        ours = from_hub(SMALL, ONCE)
    assert ours.read_bytes() == CONTENT
    for revision in ("main", COMMIT):
        found = hf_hub_download(SMALL.repo_id, FILE, revision=revision, local_files_only=True)
        assert Path(found) == from_hub(Repository(SMALL.repo_id, revision), ONCE) == ours


def test_offline_by_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(CaptioningError, match="HF_HUB_OFFLINE"):
            from_hub(SMALL, ONCE)


@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
@pytest.mark.parametrize("value", ["../../../../evil", "/tmp/evil", '"../x"', "..", f"../{COMMIT}"])
def test_headers_with_parts_of_paths(header: str, value: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {"X-Repo-Commit": COMMIT, "Content-Length": str(len(CONTENT)), header: value}
    head = answered("200 OK", list(sent.items()), b"")
    with serving_bytes(head, [*head, CONTENT]) as site:
        ask_only(site.address, monkeypatch)
        if header == "X-Repo-Commit":
            with pytest.raises(CaptioningError, match="as the commit"):
                from_hub(SMALL, ONCE)
        else:
            assert from_hub(SMALL, ONCE).read_bytes() == CONTENT
    assert not outside(home)


def drops() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
    for _ in itertools.count():  # more than counts as silence
        time.sleep(0.01)
        yield bytes(1000)


@pytest.mark.parametrize(
    ("digest", "second"),
    [
        ("", [f"HTTP/1.1 200 OK\r\nContent-Length: {len(CONTENT) + 1}\r\n\r\n".encode() + CONTENT]),
        ("", [f"HTTP/1.1 200 OK\r\nContent-Length: {10**12}\r\n\r\n".encode() + CONTENT]),
        (f'X-Linked-Etag: "{64 * "0"}"\r\n', [b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT]),
        ("", drops()),
    ],
    ids=["ends early", "huge", "another file", "drips"],
)
def test_no_captioner_comes(digest: str, second: list[bytes], monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    with serving_bytes([f"{DESCRIBED}{digest}\r\n".encode()], second) as site:
        ask_only(site.address, monkeypatch)
        with pytest.raises(CaptioningError):
            from_hub(SMALL, ONCE, longest=0.3)
    assert not list(home.rglob(FILE))


def test_a_cache_that_is_a_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch) as site:
        names = ("hf:somebody/small", f"{site.address}/small.safetensors#sha256={64 * '0'}")
        for name, place in itertools.product(names, ("file", f"file{os.sep}below")):
            monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / place))
            with pytest.raises(OSError, match="file"):
                fetched(name)


def test_the_token_goes_to_the_hub_alone_and_into_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    redirect = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n{}Location: {}\r\n\r\n"
    elsewhere = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"
    with serving_bytes([elsewhere], [elsewhere + CONTENT]) as other:
        target = f"{other.address}/file"
        renamed = redirect.format("", "/somebody/renamed")
        found, away = redirect.format(f"X-Repo-Commit: {COMMIT}\r\n", target), redirect.format("", target)
        echo = f"HTTP/1.1 500 {'x' * 80} {TOKEN} {'x' * 90}\r\nContent-Length: 0\r\n\r\n"
        answers = [[text.encode()] for text in (renamed, found, away, echo)]
        with serving_bytes(*answers) as site:
            ask_only(site.address, monkeypatch)
            assert from_hub(SMALL, ONCE).read_bytes() == CONTENT
            with pytest.raises(CaptioningError, match="500") as refused:
                from_hub(Repository("somebody/other", None), ONCE)
    assert [asked.split()[:2] for asked in site.asked[:2]] == [
        [b"HEAD", b"/somebody/small/resolve/main/captioner.safetensors"],
        [b"HEAD", b"/somebody/renamed"],
    ]
    assert all(f"Authorization: Bearer {TOKEN}".encode() in asked for asked in site.asked)
    assert b"uthorization" not in b"".join(other.asked)
    assert TOKEN[:9] not in str(refused.value)


commits = st.just(COMMIT) | st.sampled_from(["../../x", "main", "A" * 40, "", "\u00e9" * 40]) | anything
hub_headers = st.one_of(
    headers,
    st.tuples(st.just("X-Repo-Commit"), commits),
    st.tuples(st.just("X-Linked-Size"), numbers),
    st.tuples(
        st.sampled_from(["X-Linked-Etag", "ETag"]),
        st.sampled_from(["../../../x", 64 * "a", f'"{64 * "a"}"']) | anything,
    ),
)
answers = st.builds(answered, statuses, st.lists(hub_headers, max_size=5), bodies)
described = st.lists(hub_headers, max_size=3).map(
    lambda lines: answered("200 OK", [("X-Repo-Commit", COMMIT), *lines], b"")
)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets that requests leaves open
@given(answers | described, answers)
def test_any_hub_gives_a_captioner_or_a_sentence_and_nothing_else_is_written(
    first: list[bytes], second: list[bytes]
) -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        serving_bytes(first, second) as site,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        home = Path(place)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "a" / "b" / "cache"))
        ask_only(site.address, monkeypatch)
        captioner, _ = read_or_refused(lambda: from_hub(SMALL, ONCE))
        assert captioner is None or captioner.parent.name == COMMIT
        assert not outside(home)
