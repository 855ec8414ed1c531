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
from borders import read_or_refused
from hub import COMMIT, Hub, ask_only
from huggingface_hub import hf_hub_download
from hypothesis import given
from hypothesis import strategies as st
from server import serving_bytes
from test_any_answer import answer as answered
from test_any_answer import anything, bodies, headers, numbers, statuses

from captioning.errors import CaptioningError
from captioning.transfer import named
from captioning.transfer.fetch import Connection
from captioning.transfer.hub import FILE, Repository, fetched, repository

CONTENT = b"a captioner"
SMALL = Repository("somebody/small", None)
ONCE = Connection(5, retries=0, backoff=0)
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
    with pytest.raises(CaptioningError, match=r"checkpoint=.* is not allowed"):
        named.fetched(name)


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/1", COMMIT])
def test_names_that_it_has(revision: str) -> None:
    assert repository(f"hf:some-body/small_1.0@{revision}") == ("some-body/small_1.0", revision)


def test_what_the_hubs_programs_brought_is_used_and_they_find_what_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch):
        theirs = hf_hub_download(SMALL.repo_id, FILE)
    assert fetched(SMALL, ONCE) == Path(theirs)  # the hub is gone
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", f"{huggingface_hub.constants.HF_HUB_CACHE}-anew")
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch):
        ours = fetched(SMALL, ONCE)
    assert ours.read_bytes() == CONTENT
    for revision in ("main", COMMIT):
        found = hf_hub_download(SMALL.repo_id, FILE, revision=revision, local_files_only=True)
        assert Path(found) == fetched(Repository(SMALL.repo_id, revision), ONCE) == ours


def test_no_network_by_ones_own_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(CaptioningError, match="HF_HUB_OFFLINE"):
            fetched(SMALL, ONCE)


@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
@pytest.mark.parametrize("value", ["../../../../evil", "/tmp/evil", '"../x"', "..", f"../{COMMIT}"])
def test_headers_with_parts_of_paths(header: str, value: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"X-Repo-Commit": COMMIT, "Content-Length": str(len(CONTENT)), header: value}
    head = answered("200 OK", list(said.items()), b"")
    with serving_bytes(head, [*head, CONTENT]) as site:
        ask_only(site.address, monkeypatch)
        if header == "X-Repo-Commit":
            with pytest.raises(CaptioningError, match="as the commit"):
                fetched(SMALL, ONCE)
        else:
            assert fetched(SMALL, ONCE).read_bytes() == CONTENT
    assert not outside(home)


@pytest.mark.parametrize("length", [len(CONTENT) + 1, 10**12])
def test_a_file_that_ends_early_is_no_captioner(length: int, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    cut = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode() + CONTENT
    with serving_bytes([f"{DESCRIBED}\r\n".encode()], [cut]) as site:
        ask_only(site.address, monkeypatch)
        with pytest.raises(CaptioningError):
            fetched(SMALL, ONCE)
    assert not list(home.rglob(FILE))


def test_another_file_than_the_hub_says(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    head = f'{DESCRIBED}X-Linked-Etag: "{64 * "0"}"\r\n\r\n'.encode()
    with serving_bytes([head], [b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT]) as site:
        ask_only(site.address, monkeypatch)
        with pytest.raises(CaptioningError, match=r"sha256 .* expected is 0000"):
            fetched(SMALL, ONCE)
    assert not list(home.rglob(FILE))


def test_a_hub_that_drips_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def drops() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
        for _ in itertools.count():  # more than counts as silence
            time.sleep(0.01)
            yield bytes(1000)

    with serving_bytes([f"{DESCRIBED}\r\n".encode()], drops()) as site:
        ask_only(site.address, monkeypatch)
        with pytest.raises(CaptioningError, match="longer than its size allows"):
            fetched(SMALL, Connection(60, retries=1000, backoff=0), longest=0.3)


def test_a_cache_that_is_a_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch) as site:
        names = ("hf:somebody/small", f"{site.address}/small.safetensors#sha256={64 * '0'}")
        for name, place in itertools.product(names, ("file", f"file{os.sep}below")):
            monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / place))
            with pytest.raises(CaptioningError, match="cannot be brought to this machine") as refused:
                named.fetched(name)
            assert isinstance(refused.value.__cause__, OSError)


def test_the_token_goes_to_the_hub_alone_and_into_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    redirect = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n{}Location: {}\r\n\r\n"
    elsewhere = b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT
    with serving_bytes([elsewhere]) as other:
        target = f"{other.address}/file"
        renamed = redirect.format("", "/somebody/renamed")
        found, away = redirect.format(f"X-Repo-Commit: {COMMIT}\r\n", target), redirect.format("", target)
        echo = f"HTTP/1.1 500 {'x' * 80} {TOKEN} {'x' * 90}\r\nContent-Length: 0\r\n\r\n"
        answers = [[text.encode()] for text in (renamed, found, away, echo)]
        with serving_bytes(*answers) as site:
            ask_only(site.address, monkeypatch)
            assert fetched(SMALL, ONCE).read_bytes() == CONTENT
            with pytest.raises(CaptioningError, match="answers 500 ") as refused:
                fetched(Repository("somebody/other", None), ONCE)
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


@given(answers | described, answers)
def test_whatever_it_says_a_captioner_comes_or_a_sentence_and_nothing_else_is_written(
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
        captioner, _ = read_or_refused(lambda: fetched(SMALL, ONCE))
        assert captioner is None or captioner.parent.name == COMMIT
        assert not outside(home)
