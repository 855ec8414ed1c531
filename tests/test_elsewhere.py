"""Captioners that lie on a server, which is local here; of the hub: tests/push."""

import hashlib

import pytest
from download.server import Site, serving
from refusals import refuses
from support import QUIET

import captioning
from captioning.runs.checkpoints.checkpoint import load_checkpoint, write_safetensors

pytestmark = QUIET


@pytest.fixture(scope="module")
def export(shapes_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "captioner.safetensors"
    saved = load_checkpoint(shapes_run.checkpoint)
    write_safetensors(path, saved.config, saved.words, saved.networks)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "captioning"


def caption(name, run):
    return captioning.load(name, "cpu").caption(run.photographs[0])[0].caption


def test_of_a_server_once(export, shapes_run, cache):
    with serving(Site({"/small.safetensors": export})) as site:
        name = f"{site.address}/small.safetensors#sha256={hashlib.sha256(export).hexdigest()}"
        assert caption(name, shapes_run) == caption(name, shapes_run) == shapes_run.captions[0]
    assert site.ranges_asked("/small.safetensors") == [None]
    assert [path.read_bytes() for path in cache.glob("*.safetensors")] == [export]


def test_what_is_not_taken(export, cache):
    """Another file, and addresses of another form."""
    with serving(Site({"/small.safetensors": export})) as site:
        for name, key in {
            f"{site.address}/small.safetensors#sha256={64 * '0'}": "sha256",
            "https://host/small.safetensors": "checkpoint=",
            f"https://host/best.ckpt#sha256={64 * '0'}": "checkpoint=",
            f"https://host/small.safetensors#sha256={63 * '0'}": "checkpoint=",
            "hf:name": "checkpoint=",
            "hf:user/name/file": "checkpoint=",
            "hf:user/name@": "checkpoint=",
        }.items():
            with refuses(key):
                captioning.load(name)
    assert not list(cache.glob("*.safetensors"))
