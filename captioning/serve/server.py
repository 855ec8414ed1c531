"""What both pages are served by: the standard library's server, and whom it refuses.

Every refusal is one sentence. Nothing is logged but a line for each request that was refused or posted.
"""

import io
import ipaddress
import json
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTP_PORT
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore
from typing import Any

from captioning.errors import CaptioningError, quoted

CONNECTIONS = 64
"""At a time; further ones are closed."""
PATIENCE = 10
"""Seconds in which what is asked must have come."""
LONGEST = 60
"""Seconds in which all of a request must have come, with what is posted."""
SLOWEST = 50_000
"""Bytes per second that what is posted must have come with, `PATIENCE` apart."""
ANSWERED = 30
"""Seconds that a piece of the answer may take to be sent."""
LINGER = 3
"""Seconds for which what a refused visitor goes on to send is read and forgotten."""
PIECE = 2**16
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """A request that is answered by a sentence."""

    def __init__(self, status: HTTPStatus, sentence: object) -> None:
        super().__init__(str(sentence))
        self.status = status


class Server(ThreadingHTTPServer):
    """Listens as soon as it is made; `serve_forever` answers.

    Args:
        host: a name or address of this machine.
        port: 0 takes any that is free.
        handler: makes what answers a connection.

    Raises:
        CaptioningError: host or port cannot be had.
    """

    def __init__(self, host: str, port: int, handler: Callable[..., "Handler"]) -> None:
        self._places = BoundedSemaphore(CONNECTIONS)
        try:
            self.address_family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            super().__init__(address[:2], handler)  # type: ignore[arg-type]
        except (OSError, ValueError) as error:  # the latter of what no host can be called
            reason = getattr(error, "strerror", None) or error
            raise CaptioningError(
                f"host={quoted(host)} port={port} cannot be listened at: {reason}; port=0 takes any port that is free"
            ) from error
        self.port = self.socket.getsockname()[1]
        bound = ipaddress.ip_address(self.socket.getsockname()[0])
        self.local = bound.is_loopback
        name = socket.gethostname() if bound.is_unspecified else f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self.port}/"
        names = {name.lower(), "localhost", "127.0.0.1", "[::1]"}
        self._hosts = {f"{each}:{self.port}" for each in names} | (names if self.port == HTTP_PORT else set())

    def server_bind(self) -> None:
        """Not as `HTTPServer`, which then asks the network what this machine is called."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, of which there are not too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of visitors who go away."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def is_named(self, host: str | None) -> bool:
        """Whether a request's Host is this server.

        Where this machine alone is answered, a name that is not its own is of a page elsewhere that had its name lead
        here (DNS rebinding). Others may know this machine by any name.
        """
        return not self.local or (host or "").lower() in self._hosts


class Incoming(io.RawIOBase):
    """Bytes of a connection until `deadline`, however slowly: a socket waits for each byte anew."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket) -> None:
        self._raw, self._connection = raw, connection
        self.deadline = time.monotonic() + PATIENCE

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
            self._connection.settimeout(ANSWERED)

    def close(self) -> None:
        self._raw.close()
        super().close()


class Handler(BaseHTTPRequestHandler):
    """Answers one request; `get` and `post` are what a page adds."""

    server: Server
    server_version, sys_version = "captioning", ""
    timeout = ANSWERED
    policy = "frame-ancestors 'none'"
    """The Content-Security-Policy."""

    def setup(self) -> None:
        """Before the request."""
        super().setup()
        self._incoming = Incoming(self.rfile.detach(), self.connection)
        self.rfile = io.BufferedReader(self._incoming)

    def receive(self, length: int) -> bytes:
        """Body of a request.

        Raises:
            Refused: less than `length` bytes come, or they come too slowly.
        """
        content, begun = bytearray(), time.monotonic()
        with suppress(TimeoutError):
            while len(content) < length:
                allowed = min(LONGEST, PATIENCE + len(content) / SLOWEST)
                self._incoming.deadline = begun + allowed
                piece = self.rfile.read1(min(PIECE, length - len(content)))
                if not piece:
                    break
                content += piece
        if len(content) < length:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "what was posted did not arrive whole, or came too slowly")
        return bytes(content)

    def get(self) -> None:
        """Answers GET, and HEAD with `send`.

        Raises:
            Refused: there is nothing to be had.
        """
        raise NotImplementedError

    def post(self) -> None:
        """Answers POST.

        Raises:
            Refused: there is nothing to be given.
        """
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered here")

    def do_GET(self) -> None:
        self._answer(self.get)

    def do_HEAD(self) -> None:
        self._answer(self.get)

    def do_POST(self) -> None:
        self._answer(self.post)

    def _answer(self, act: Callable[[], None]) -> None:
        try:
            if not self.server.is_named(self.headers["Host"]):
                raise Refused(HTTPStatus.FORBIDDEN, f"this page is for this machine alone, at {self.server.url}")
            act()
        except Refused as refused:
            self._say(refused.status, str(refused))

    def send(self, status: HTTPStatus, kind: str, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer."""
        self.begin(status, {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(content)

    def begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        """What stands before an answer's content."""
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Security-Policy": self.policy, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _say(self, status: HTTPStatus, sentence: str) -> None:
        if self.command == "POST":
            self.send(status, "application/json", json.dumps({"error": sentence}).encode())
            self._forget()
        else:
            self.send(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def _forget(self) -> None:
        """Reads on for a moment: closed with bytes unread a connection is reset, and the sentence lost on its way."""
        self._incoming.deadline = time.monotonic() + LINGER
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read1(PIECE):
                pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library finds wrong with a request, as a sentence."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._say(status, quoted(message or status.phrase))

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """A line, without what was asked."""
        if self.command == "POST" or int(code) >= HTTPStatus.BAD_REQUEST:
            self.log_message("%s %s %s", self.command, getattr(self, "path", "").partition("?")[0], int(code))

    def log_message(self, format: str, *args: Any) -> None:
        """On standard error."""
        with suppress(OSError):
            print(quoted(format % args), file=sys.stderr, flush=True)
