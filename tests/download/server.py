"""Servers on real sockets: one of files that can misbehave, and writes down what it was asked for; one of any bytes."""

import hashlib
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Site:
    """What is served, and how.

    Attributes:
        files: by path.
        redirects: from path to path.
        ranges: whether a part of a file can be had.
        names: whether files have ETags.
        breaks: after how many bytes of a file the connection is closed; used up one by one.
        answers: codes instead of files; used up one by one.
        stall: after so many bytes of a file nothing comes, until `go_on` is set.
        requests: path, Range and If-Range of every request for a file.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    names: bool = True
    breaks: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    stall: int | None = None
    go_on: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    address: str = ""

    def ranges_asked(self, path: str) -> list[str | None]:
        return [asked for name, asked, _ in self.requests if name == path]


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            if self.path in site.redirects:
                self.send_response(302)
                self.send_header("Location", site.redirects[self.path])
                self.send_header("Connection", "close")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            asked, condition = self.headers.get("Range"), self.headers.get("If-Range")
            site.requests.append((self.path, asked, condition))
            content = site.files.get(self.path)
            if site.answers or content is None:
                self.send_error(site.answers.pop(0) if site.answers else 404)
                return
            etag = f'"{hashlib.md5(content).hexdigest()}"'
            first = 0
            if asked and site.ranges and condition in (None, etag):
                first = int(asked.removeprefix("bytes=").removesuffix("-"))
                if first >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - first))
            if site.names:
                self.send_header("ETag", etag)
            self.end_headers()
            self._send(content[first:])

        def _send(self, content: bytes) -> None:
            if site.breaks:
                content = content[: site.breaks.pop(0)]
            if site.stall is not None:
                self.wfile.write(content[: site.stall])
                site.go_on.wait()
                return
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        site.address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield site
        finally:
            site.go_on.set()
            server.shutdown()
            thread.join()


@dataclass
class RawSite:
    """To every connection the pieces of the next answer, the last one again and again; what they are is no matter.

    Attributes:
        answers: that are to come.
        asked: the requests, as they came.
    """

    answers: list[Iterable[bytes]] = field(default_factory=list)
    asked: list[bytes] = field(default_factory=list)
    address: str = ""
    closed: bool = False

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self.asked.append(connection.recv(1 << 16))
                for piece in self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]:
                    if self.closed:
                        return
                    connection.sendall(piece)


@contextmanager
def serving_bytes(*answers: Iterable[bytes]) -> Iterator[RawSite]:
    site = RawSite(list(answers))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        site.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=site.serve, args=(listener,))
        thread.start()
        try:
            yield site
        finally:
            site.closed = True
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
