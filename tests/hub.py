"""A hub on a real socket: it gives what it has and takes commits, with large files apart, as the
real one does.
"""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import huggingface_hub.constants
from download.server import listening

COMMIT = 40 * "a"
"""The only one that files are of."""
REPOSITORY = "somebody/small"


@dataclass
class Hub:
    """What it has, and what it was told.

    Attributes:
        files: of its one repository, by name.
        tokens: that came with commits.
        echoes: whether it takes no commit and says with which token it was asked.
        silent: commits wait for it, without an answer; unset: they do not.
        etag: of every file; "": of its content.
        headers: further ones of every file.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    tokens: list[str | None] = field(default_factory=list)
    address: str = ""
    echoes: bool = False
    silent: threading.Event | None = None
    etag: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def ask_only(address, monkeypatch):
    """Has the hub be at that address."""
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
    )
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@contextmanager
def serving(hub, monkeypatch):
    """Has the library ask this hub alone."""
    large = {}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self._file()

        def do_GET(self):
            about = f"/api/models/{REPOSITORY}/"
            if self.path.startswith(f"{about}tree/"):
                files = [
                    {"type": "file", "path": name, "size": len(content), "oid": name}
                    for name, content in hub.files.items()
                ]
                self._answer(200, files)
            elif self.path.startswith(about):
                self._answer(200, {"id": REPOSITORY, "sha": COMMIT})
            else:
                self.wfile.write(self._file())

        def do_PUT(self):
            content = self._content()
            large[hashlib.sha256(content).hexdigest()] = content
            self._answer(200, {})

        def do_POST(self):
            content = self._content()
            if hub.silent is not None:
                hub.silent.wait()
                return
            place = re.fullmatch(rf"/api/models/{REPOSITORY}/(preupload|commit)/main", self.path)
            if self.path == "/api/validate-yaml":
                self._answer(200, {"warnings": [], "errors": []})
            elif hub.echoes:
                self._answer(403, {"error": f"not with {self.headers['Authorization']}"})
            elif place and place[1] == "preupload":
                names = [file["path"] for file in json.loads(content)["files"]]
                modes = ("lfs" if name.endswith(".safetensors") else "regular" for name in names)
                files = zip(names, modes, strict=True)
                self._answer(
                    200,
                    {
                        "files": [
                            {"path": n, "uploadMode": m, "shouldIgnore": False} for n, m in files
                        ]
                    },
                )
            elif place:
                hub.tokens.append(self.headers["Authorization"])
                for kind, value in (
                    (each["key"], each["value"]) for each in map(json.loads, content.splitlines())
                ):
                    if kind == "file":
                        hub.files[value["path"]] = base64.b64decode(value["content"])
                    elif kind == "lfsFile":
                        hub.files[value["path"]] = large[value["oid"]]
                self._answer(
                    200,
                    {
                        "commitUrl": f"{hub.address}/{REPOSITORY}/commit/{40 * 'b'}",
                        "commitOid": 40 * "b",
                    },
                )
            else:
                upload = {"upload": {"href": f"{hub.address}/upload"}}
                objects = [{**each, "actions": upload} for each in json.loads(content)["objects"]]
                self._answer(200, {"transfer": "basic", "objects": objects})

        def _content(self):
            return self.rfile.read(int(self.headers["Content-Length"]))

        def _answer(self, status, answer):
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _file(self):
            place = re.fullmatch(rf"/{REPOSITORY}/resolve/(main|{COMMIT})/(.+)", self.path)
            content = hub.files.get(place[2], b"") if place else b""
            self.send_response(200 if content else 404)
            if not content:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hub.etag or hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            for name, value in hub.headers.items():
                self.send_header(name, value)
            self.end_headers()
            return content

        def log_message(self, format, *args):
            pass

    with listening(Handler) as hub.address:
        ask_only(hub.address, monkeypatch)
        try:
            yield hub
        finally:
            if hub.silent is not None:
                hub.silent.set()
