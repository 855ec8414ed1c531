"""Captioners that lie on a server or in a repository of the hub, both local here."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import pytest
from download.server import Site, serving
from trained_runs import Run

import captioning
from captioning.config.command import NOT_HERE
from captioning.errors import CaptioningError
from captioning.export.weights import export_weights

pytestmark = [pytest.mark.filterwarnings(f"ignore:{message}") for message in NOT_HERE]


@pytest.fixture(scope="module")
def export(shapes_run: Run, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("export") / "captioner.safetensors"
    export_weights(shapes_run.checkpoint, path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "captioning"


def caption(name: str, run: Run) -> str:
    return captioning.load(name, "cpu").caption(run.photographs[0])[0].caption


def test_of_a_server_once_and_going_on_where_it_broke(export: bytes, shapes_run: Run, cache: Path) -> None:
    with serving(Site({"/small.safetensors": export}, breaks=[len(export) // 2])) as site:
        name = f"{site.address}/small.safetensors#sha256={hashlib.sha256(export).hexdigest()}"
        assert caption(name, shapes_run) == caption(name, shapes_run) == shapes_run.captions[0]
    first, second = site.ranges_asked("/small.safetensors")
    assert first is None
    assert second == f"bytes={len(export) // 2}-"
    assert [path.read_bytes() for path in cache.glob("*.safetensors")] == [export]


def test_another_file_is_deleted_and_named(export: bytes, cache: Path) -> None:
    with (
        serving(Site({"/small.safetensors": export})) as site,
        pytest.raises(CaptioningError, match="damaged on the way, or replaced"),
    ):
        captioning.load(f"{site.address}/small.safetensors#sha256={64 * '0'}")
    assert not list(cache.glob("*.safetensors"))


@pytest.mark.parametrize(
    "name",
    [
        "https://host/small.safetensors",
        "https://host/best.ckpt#sha256=" + 64 * "0",
        "https://host/small.safetensors#sha256=" + 63 * "0",
        "hf:name",
        "hf:user/name/file",
        "hf:user/name@",
    ],
)
def test_addresses_of_another_form(name: str) -> None:
    with pytest.raises(CaptioningError, match=r"a captioner elsewhere is https://HOST/FILE\.safetensors#sha256=HEX"):
        captioning.load(name)


@contextmanager
def hub(path: str, content: bytes) -> Iterator[str]:
    """What the hub answers of one file."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            found = self.path == path
            self.send_response(200 if found else 404)
            if not found:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", str(len(content) if found else 0))
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", 40 * "a")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_of_the_hub(export: bytes, shapes_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with hub("/somebody/small/resolve/main/captioner.safetensors", export) as address:
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        assert caption("hf:somebody/small", shapes_run) == shapes_run.captions[0]
        with pytest.raises(CaptioningError, match="hf:somebody/small@other does not come from the Hugging Face Hub"):
            captioning.load("hf:somebody/small@other")
