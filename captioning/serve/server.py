"""HTTP server of both pages on the standard library, with Host checks and a deadline for every request.

Refusals are one sentence each. Only requests that were refused or posted are logged.
"""

import io
import ipaddress
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTP_PORT
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import unquote

from captioning.config.paths import given_path
from captioning.errors import CaptioningError, quoted

CONNECTIONS = 64  # at a time; further ones are closed
HEAD_SECONDS = 10  # for the request line and headers
BODY_SECONDS = 60  # for the body
BODY_RATE = 50_000  # bytes per second that a body needs after the first `HEAD_SECONDS`
SEND_SECONDS = 30  # for a piece of the answer
LINGER_SECONDS = 3  # for which the rest of a refused body is read and dropped
PIECE = 2**16
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
INDEX = "index.html"
TEXT = {"html": "html", "css": "css", "js": "javascript", "md": "markdown", "csv": "csv", "txt": "plain"}
TYPES = {
    **{f".{suffix}": f"text/{kind}; charset=utf-8" for suffix, kind in TEXT.items()},
    **dict.fromkeys((".yml", ".yaml"), "application/yaml; charset=utf-8"),
    **{".json": "application/json", ".pdf": "application/pdf"},
    **{".jpg": "image/jpeg", ".png": "image/png", ".svg": "image/svg+xml"},
}
"""The same on every machine, unlike the standard library's; other files are offered for download."""


class Refused(Exception):
    """A request that is answered by a status and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: object) -> None:
        super().__init__(str(sentence))
        self.status = status


class Server(ThreadingHTTPServer):
    """Listens as soon as it is constructed; `serve_forever` answers with a `handler` per connection.

    `host` is a name or address of this machine; port 0 takes any free one.
    """

    def __init__(self, host: str, port: int, handler: Callable[..., "Handler"]) -> None:
        self._places = BoundedSemaphore(CONNECTIONS)
        try:
            self.address_family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            super().__init__(address[:2], handler)  # type: ignore[arg-type]
        except (OSError, ValueError) as error:  # the latter for impossible host names
            reason = getattr(error, "strerror", None) or error
            raise CaptioningError(
                f"cannot listen at host={quoted(host)} port={port}: {reason}; port=0 takes any free port"
            ) from error
        self.port = self.socket.getsockname()[1]
        bound = ipaddress.ip_address(self.socket.getsockname()[0])
        self.local = bound.is_loopback
        name = socket.gethostname() if bound.is_unspecified else f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self.port}/"
        names = {name.lower(), "localhost", "127.0.0.1", "[::1]"}
        self._hosts = {f"{each}:{self.port}" for each in names} | (names if self.port == HTTP_PORT else set())

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # `HTTPServer` would ask the network for this machine's name

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):  # visitors who go away
            super().handle_error(request, client_address)

    def is_named(self, host: str | None) -> bool:
        """True if a Host header may name this server.

        A server for this machine alone refuses foreign names, which a page elsewhere could make lead here (DNS
        rebinding). Other machines may know this one by any name.
        """
        return not self.local or (host or "").lower() in self._hosts


class Incoming(io.RawIOBase):
    """The bytes of a connection until `deadline`; a socket's own timeout starts anew with every byte."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        self._raw, self._connection = raw, connection
        self.deadline = time.monotonic() + HEAD_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request came too slowly")
        self._connection.settimeout(left)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._connection.settimeout(SEND_SECONDS)

    def close(self) -> None:
        self._raw.close()
        super().close()


class Handler(BaseHTTPRequestHandler):
    """Answers one request; subclasses add `get` and `post`, which raise `Refused`."""

    server: Server
    server_version, sys_version = "captioning", ""
    timeout = SEND_SECONDS
    policy = "frame-ancestors 'none'"  # Content-Security-Policy

    def setup(self) -> None:
        super().setup()
        self._incoming = Incoming(self.rfile.detach(), self.connection)
        self.rfile = io.BufferedReader(self._incoming)

    def get(self) -> None:
        """Answer GET and HEAD."""
        raise NotImplementedError

    def post(self) -> None:
        """Answer POST."""
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered here")

    def do_GET(self) -> None:
        self._answer(self.get)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(self.post)

    def _answer(self, act: Callable[[], None]) -> None:
        try:
            if not self.server.is_named(self.headers["Host"]):
                raise Refused(HTTPStatus.FORBIDDEN, f"this page is for this machine alone, at {self.server.url}")
            act()
        except Refused as refused:
            self._refuse(refused.status, str(refused))

    def receive(self, length: int) -> bytes:
        """The body, `length` bytes, if it arrives in time."""
        content, begun = bytearray(), time.monotonic()
        with suppress(TimeoutError):
            while len(content) < length:
                self._incoming.deadline = begun + min(BODY_SECONDS, HEAD_SECONDS + len(content) / BODY_RATE)
                piece = self.rfile.read1(min(PIECE, length - len(content)))
                if not piece:
                    break
                content += piece
        if len(content) < length:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the photograph arrived incomplete or too slowly")
        return bytes(content)

    def send(self, status: HTTPStatus, kind: str, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a complete answer."""
        self.begin(status, {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(content)

    def begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Security-Policy": self.policy, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        if self.command != "POST":
            self.send(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())
            return
        self.send(status, "application/json", json.dumps({"error": sentence}).encode())
        # A connection that is closed with bytes unread is reset, and the sentence is lost on its way.
        self._incoming.deadline = time.monotonic() + LINGER_SECONDS
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read1(PIECE):
                pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._refuse(status, quoted(message or status.phrase))

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if self.command == "POST" or int(code) >= HTTPStatus.BAD_REQUEST:
            self.log_message("%s %s %s", self.command, getattr(self, "path", "").partition("?")[0], int(code))

    def log_message(self, format: str, *args: Any) -> None:
        with suppress(OSError):
            print(quoted(format % args), file=sys.stderr, flush=True)


def report_folder(setting: str) -> Path:
    """The folder that `captioning.report` has written, without symbolic links."""
    folder = given_path(setting)
    if not (folder / INDEX).is_file():
        raise CaptioningError(
            f"report={quoted(setting)} has no {INDEX}: python -m captioning.report runs=FOLDER "
            f"output={quoted(setting)} writes it"
        )
    return folder.resolve()


def find(folder: Path, target: str) -> Path:
    """The file of a request's target, of folders their page; refused if it is absent, hidden or outside `folder`."""
    absent = Refused(HTTPStatus.NOT_FOUND, "there is no such file in this report")
    root, *parts = unquote(target.partition("?")[0], errors="surrogateescape").split("/")
    if parts and not parts[-1]:
        parts[-1] = INDEX
    plain = all(part and not part.startswith(".") and not {"\0", "\\", os.sep} & set(part) for part in parts)
    if root or not parts or not plain:
        raise absent
    try:
        path = folder.joinpath(*parts).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # circular links; names that no file can have
        raise absent from error
    if not path.is_relative_to(folder) or not path.is_file():  # opening a pipe would wait for ever
        raise absent
    return path


class FolderHandler(Handler):
    """Serves the files of `folder`; browsers ask each time whether a file has changed."""

    def __init__(self, *connection: Any, folder: Path) -> None:
        self._folder = folder
        super().__init__(*connection)

    def get(self) -> None:
        path = find(self._folder, self.path)
        try:
            file = path.open("rb")
        except OSError as error:
            raise Refused(HTTPStatus.FORBIDDEN, f"this file cannot be read: {error.strerror}") from error
        with file:
            status = os.fstat(file.fileno())
            headers = {"Cache-Control": "no-cache", "ETag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"'}
            if self.headers["If-None-Match"] == headers["ETag"]:
                self.begin(HTTPStatus.NOT_MODIFIED, headers)
                return
            kind = TYPES.get(path.suffix.lower(), "application/octet-stream")
            self.begin(HTTPStatus.OK, {"Content-Type": kind, "Content-Length": str(status.st_size), **headers})
            if self.command != "HEAD":
                shutil.copyfileobj(file, self.wfile)
