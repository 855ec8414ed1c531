"""Standard-library HTTP server of both pages, with Host checks and request deadlines.

Refusals are one sentence each. Only requests that were refused or posted are logged.
"""

import ipaddress
import json
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTP_PORT
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import MimeTypes
from pathlib import Path
from socketserver import TCPServer
from threading import BoundedSemaphore, Timer
from typing import Any

from captioning.download.named import given_path
from captioning.errors import CaptioningError, quoted

CONNECTIONS = 64  # at a time; further ones are closed
HEAD_SECONDS = 10  # for the request line and headers, and before a body's rate counts
BODY_SECONDS = 60  # at most for the body
BODY_RATE = 50_000  # bytes per second that a body needs
SEND_SECONDS = 30  # for a piece of the answer
LINGER_SECONDS = 3  # for which the rest of a refused body is read and dropped
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # browsers ask each time whether a file has changed
}
INDEX = "index.html"
KINDS = (
    MimeTypes()
)  # those of Python, the same on every machine; other files are offered for download


class Refused(Exception):
    """A request that is answered by a status and a sentence."""

    def __init__(self, status: int, sentence: object) -> None:
        super().__init__(str(sentence))
        self.status = status


class Server(ThreadingHTTPServer):
    """Listens as soon as it is constructed; `serve_forever` answers with a `handler` per
    connection.

    `host` is a name or address of this machine; port 0 takes any free one.
    """

    def __init__(self, host: str, port: int, handler: Callable[..., "Handler"]) -> None:
        self._places = BoundedSemaphore(CONNECTIONS)
        try:
            self.address_family, *_, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )[0]
            super().__init__(address[:2], handler)  # type: ignore[arg-type]
        except (OSError, ValueError) as error:  # the latter for impossible host names
            error.add_note(
                f"cannot listen at host={quoted(host)} port={port}; port=0 takes any free port"
            )
            raise
        self.port = self.socket.getsockname()[1]
        bound = ipaddress.ip_address(self.socket.getsockname()[0])
        self.local = bound.is_loopback
        name = (
            socket.gethostname() if bound.is_unspecified else f"[{host}]" if ":" in host else host
        )
        self.url = f"http://{name}:{self.port}/"
        names = {name.lower(), "localhost", "127.0.0.1", "[::1]"}
        self._hosts = {f"{each}:{self.port}" for each in names} | (
            names if self.port == HTTP_PORT else set()
        )

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
        """Check a Host header; only servers for this machine alone restrict it."""
        # a foreign name of this machine alone could lead here from a page elsewhere (DNS rebinding)
        return not self.local or (host or "").lower() in self._hosts


class Handler(SimpleHTTPRequestHandler):
    """Answers one request; the methods of subclasses, `do_GET` and so on, may raise `Refused`."""

    server: Server
    server_version, sys_version = "captioning", ""
    timeout = SEND_SECONDS
    policy = "frame-ancestors 'none'"  # Content-Security-Policy

    def setup(self) -> None:
        super().setup()
        self._timer = Timer(0, self._end)
        self._read_within(HEAD_SECONDS)

    def finish(self) -> None:
        self._timer.cancel()
        super().finish()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except Refused as refused:
            self._refuse(refused.status, str(refused))

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        self._timer.cancel()  # the head is here
        if parsed and not self.server.is_named(self.headers["Host"]):
            raise Refused(403, f"this page is for this machine alone, at {self.server.url}")
        return parsed

    def receive(self, length: int) -> bytes:
        """The body, `length` bytes, if it arrives in time."""
        self._read_within(min(BODY_SECONDS, HEAD_SECONDS + length / BODY_RATE))
        with suppress(TimeoutError):
            if len(content := self.rfile.read(length)) == length:
                return content
        raise Refused(408, "the photograph arrived incomplete or too slowly")

    def send(self, status: int, kind: str, content: bytes) -> None:
        """Send a complete answer."""
        self.begin(status, {"Content-Type": kind, "Content-Length": str(len(content))})
        if self.command != "HEAD":
            self.wfile.write(content)

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def end_headers(self) -> None:
        for name, value in {**HEADERS, "Content-Security-Policy": self.policy}.items():
            self.send_header(name, value)
        super().end_headers()

    def _read_within(self, seconds: float) -> None:
        """Nothing more arrives after so long; a socket's own timeout starts anew with every
        byte.
        """
        self._timer.cancel()
        self._timer = Timer(seconds, self._end, [socket.SHUT_RD])
        self._timer.daemon = True  # or the end of the program would wait for it
        self._timer.start()

    def _end(self, direction: int) -> None:
        with suppress(OSError):
            self.connection.shutdown(direction)

    def _refuse(self, status: int, sentence: str) -> None:
        if self.command != "POST":
            self.send(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())
            return
        self.send(status, "application/json", json.dumps({"error": sentence}).encode())
        # A connection that is closed with bytes unread is reset, and the sentence is lost on its
        # way.
        self._read_within(LINGER_SECONDS)
        self._end(socket.SHUT_WR)
        with suppress(OSError):
            while self.rfile.read1():
                pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._refuse(405 if code == 501 else code, quoted(message or HTTPStatus(code).phrase))

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if self.command == "POST" or int(code) >= 400:
            self.log_message(
                "%s %s %s", self.command, getattr(self, "path", "").partition("?")[0], int(code)
            )

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


class FolderHandler(Handler):
    """Serves the files of `directory`."""

    directory: str

    def translate_path(self, path: str) -> str:
        """The file that is asked for; refused if it is absent, hidden or outside the report."""
        folder = Path(self.directory)
        with suppress(
            OSError, RuntimeError, ValueError
        ):  # circular links; names that no file can have
            found = Path(super().translate_path(path))
            hidden = any(part.startswith(".") for part in found.relative_to(folder).parts)
            found = (found / INDEX if found.is_dir() else found).resolve(strict=True)
            if (
                found.is_relative_to(folder) and found.is_file() and not hidden
            ):  # opening a pipe would wait for ever
                return str(found)
        raise Refused(404, "there is no such file in this report")

    def guess_type(self, path: Any) -> str:
        kind = KINDS.guess_type(str(path).lower())[0] or "application/octet-stream"
        return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
