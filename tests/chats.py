"""A server of chats on a real socket, which answers as it is told and writes down who asked."""

import base64
import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from download.server import listening


def said(*texts, **more):
    """The body of an answer."""
    choices = [{"message": {"role": "assistant", "content": text, **more}} for text in texts]
    return json.dumps({"choices": choices}).encode()


@dataclass
class Reply:
    """Of the server."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    missing: int = 0  # bytes that are announced and do not come
    held: bool = False  # it comes when `Server.go_on` is set
    raw: bytes = b""  # in place of all of it
    endless: bytes = b""  # follows `raw` again and again, until whoever asked has left
    pause: float = 0.0  # seconds between two


@dataclass
class Server:
    """What it answers about an image's file when it is asked the n-th time, from 0, and who asked.

    Attributes:
        reply: a function of the file and n, called by several threads.
        asked: how often about each file.
        requests: without the images.
    """

    reply: Any
    asked: Counter = field(default_factory=Counter)
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    @property
    def setting(self):
        return f"address={self.address}/v1#eyes:7b"


@contextmanager
def chatting(reply):
    """A server."""
    server, lock = Server(reply), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            url = request["messages"][0]["content"][1]["image_url"].pop("url")
            file = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))
            with lock:
                number = server.asked[file]
                server.asked[file] += 1
                server.requests.append((dict(self.headers), {"path": self.path, **request}))
            reply = server.reply(file, number)
            if reply.held:
                server.go_on.wait()
            self.close_connection = bool(reply.missing or reply.held or reply.endless)
            self.wfile.write(reply.raw)
            while reply.endless and not server.go_on.is_set():
                self.wfile.write(reply.endless)
                time.sleep(reply.pause)
            if reply.raw:
                return
            self.send_response(reply.status)
            length = len(reply.body) + reply.missing
            for name, value in {"Content-Length": length, **reply.headers}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_):
            pass

        def handle_one_request(self):
            try:
                super().handle_one_request()
            except OSError:  # whoever asked has left
                self.close_connection = True

    with listening(Handler) as server.address:
        try:
            yield server
        finally:
            server.go_on.set()
