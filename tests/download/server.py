"""A server of files on a real socket that can break off, and writes down what it was asked for."""

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What is served, and how."""

    files: dict[str, bytes] = field(default_factory=dict)  # by path
    redirects: dict[str, str] = field(default_factory=dict)  # from path to path
    ranges: bool = True  # whether a part of a file can be had
    breaks: list[int] = field(
        default_factory=list
    )  # bytes after which the connection is closed; used up one by one
    answers: list[int] = field(default_factory=list)  # codes instead of files; used up one by one
    lengths: bool = True  # whether it says how long a file is
    stall: int | None = None  # after so many bytes of a file nothing comes, until `go_on` is set
    go_on: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range
    address: str = ""

    def ranges_asked(self, path):
        return [asked for name, asked in self.requests if name == path]


@contextmanager
def listening(handler):
    """The address of a server of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving(site):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.close_connection = True
            if self.path in site.redirects:
                self._head(302, {"Location": site.redirects[self.path], "Content-Length": 0})
                return
            asked = self.headers.get("Range")
            site.requests.append((self.path, asked))
            answer = site.answers.pop(0) if site.answers else site.files.get(self.path, 404)
            if isinstance(answer, int):
                self.send_error(answer)
            else:
                self._file(answer, asked)

        def _file(self, content, asked):
            size, first = len(content), 0
            headers = {}
            if asked and site.ranges:
                first = int(asked.removeprefix("bytes=").removesuffix("-"))
                headers["Content-Range"] = f"bytes {first}-{size - 1}/{size}"
            if first >= size:
                self._head(416, {"Content-Range": f"bytes */{size}", "Content-Length": 0})
                return
            headers |= {"Content-Length": size - first} if site.lengths else {}
            self._head(206 if first else 200, headers)
            content = content[first:]
            content = content[: site.breaks.pop(0)] if site.breaks else content
            self.wfile.write(content[: site.stall])
            if site.stall is not None:
                site.go_on.wait()

        def _head(self, code, headers):
            self.send_response(code)
            for name, value in {"Connection": "close", **headers}.items():
                self.send_header(name, str(value))
            self.end_headers()

        def log_message(self, *_):
            pass

    with listening(Handler) as site.address:
        try:
            yield site
        finally:
            site.go_on.set()
