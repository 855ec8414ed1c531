"""Captioners of the hub: their names, its own cache, and a hub that is away or has another file."""

import hub
import huggingface_hub.constants
import pytest
from hub import COMMIT, Hub
from huggingface_hub import hf_hub_download
from refusals import refuses

from captioning.pretrained.named import FILE, REPOSITORY, fetched

CONTENT, NAME = b"a captioner", "hf:somebody/small"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody")
    return tmp_path / "cache"


NOWHERE = ["a/b@../../x", "a/b@/etc/x", "a/b@x/../../y", "a/b@x//y", "a--b/c", "../b", "-a/b"]


def test_names_that_the_hub_has_not_and_has(cache):
    for name in NOWHERE:
        with refuses(f"hf:{name}"):
            fetched(f"hf:{name}")
    assert not cache.exists()
    for revision in ("main", "v1.0", "refs/pr/1", COMMIT):
        match = REPOSITORY.fullmatch(f"hf:some-body/small_1.0@{revision}")
        assert match.group("repo_id", "revision") == ("some-body/small_1.0", revision)


def test_the_cache_is_the_hubs_and_serves_without_it(monkeypatch):
    with hub.serving(Hub({FILE: CONTENT}), monkeypatch):
        ours = fetched(NAME)
        assert str(ours) == hf_hub_download("somebody/small", FILE)
    assert ours.read_bytes() == CONTENT
    assert {fetched(name) for name in (NAME, f"{NAME}@main", f"{NAME}@{COMMIT}")} == {
        ours
    }  # the hub is gone
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the library's tries
    with refuses(r"hf:somebody/other .*refused"):
        fetched("hf:somebody/other")


@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag"])
@pytest.mark.parametrize(
    "tag", ["{outside}/written", "../../written", "..", "a/../../../written", "W/../../written"]
)
def test_no_hub_has_a_file_written_outside_the_cache(header, tag, cache, tmp_path, monkeypatch):
    tag = tag.format(outside=tmp_path)
    site = Hub(
        {FILE: CONTENT},
        **({"etag": tag} if header == "ETag" else {"headers": {header: f'"{tag}"'}}),
    )
    with hub.serving(site, monkeypatch), refuses(f"{header}=.*no name of a file"):
        fetched(NAME)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_offline_by_choice_and_another_file_than_described(monkeypatch):
    with hub.serving(Hub({FILE: CONTENT}, etag=64 * "0"), monkeypatch):
        with refuses("it is damaged, delete it"):
            fetched(NAME)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        with refuses("HF_HUB_OFFLINE"):
            fetched("hf:somebody/other")
