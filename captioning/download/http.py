"""One request over HTTP whose answer is bounded in time and checked in form, whatever the server says.

`http.client` waits for each byte separately, so a server that sends one now and then, or headers without end, would
keep it for ever; and it raises whatever its parts raise of headers, addresses and lengths that are none.
"""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Self
from urllib import request as urllib
from urllib.error import HTTPError

from captioning.download.archive import BLOCK
from captioning.errors import CaptioningError

TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same request may succeed."""
SLOWEST = 1000
"""Bytes per second: a connection that brings less for as long as `timeout` counts as lost."""
SHOWN = 200
"""Characters of what the server says that a message quotes."""

NUMBER = r"[0-9]{1,18}"
PLACE = re.compile(rf"bytes ({NUMBER})-{NUMBER}/({NUMBER}|\*)")
VERSION = re.compile(r"[\x20-\x7e]{1,200}")


class Interrupted(Exception):
    """The transfer ended early; a later try may go on with it."""


class Unavailable(CaptioningError):
    """There is no way to the server, or it does not have the file."""


class Request:
    """A request for the bytes of a file from one place on; a context manager that ends it.

    Args:
        url: the address.
        done: how many bytes are there already.
        version: what the server called the file that they are from; it sends all of it, if it is another one by now.
        timeout: seconds of silence after which the connection counts as lost. The answer must begin, or at least
            `SLOWEST` bytes a second must come, within twice as long.
    """

    def __init__(self, url: str, done: int, version: str, timeout: float) -> None:
        self._url, self._done, self._version, self._timeout = url, done, version, timeout
        self._received = 0
        self._sockets: list[socket.socket] = []
        self._ended = threading.Event()
        self._stalled = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def answer(self) -> HTTPResponse:
        """The server's answer, 200 or 206.

        Raises:
            HTTPError: any other answer.
            Interrupted: there is none, or none that can be understood.
        """
        headers = {"User-Agent": "captioning"}
        if self._done:
            headers["Range"] = f"bytes={self._done}-"
            if self._version:
                headers["If-Range"] = self._version
        opener = urllib.OpenerDirector()  # not urllib's own, which follows a redirect to FTP as well
        for handler in (
            urllib.ProxyHandler(),
            _Handler(self._sockets),
            urllib.HTTPRedirectHandler(),
            urllib.HTTPErrorProcessor(),
            urllib.HTTPDefaultErrorHandler(),
            urllib.UnknownHandler(),
        ):
            opener.add_handler(handler)
        with self._network():
            response: HTTPResponse = opener.open(urllib.Request(self._url, headers=headers), timeout=self._timeout)
        if response.status not in (200, 206):
            response.close()
            raise Interrupted(f"it answers {shown(f'{response.status} {response.reason}')}")
        return response

    def blocks(self, response: HTTPResponse) -> Iterator[bytes]:
        """What comes, as it comes: a longer read would lose its beginning when the connection ends in the middle.

        Raises:
            Interrupted: the connection was lost.
        """
        while True:
            with self._network():
                block = response.read1(BLOCK)
            if not block:
                return
            self._received += len(block)
            yield block

    def _watch(self) -> None:
        before = None  # the first stretch of time belongs, in part, to the way to the server
        while not self._ended.wait(self._timeout):
            if before is not None and self._received - before < SLOWEST * self._timeout:
                self._stalled = True
                for connected in self._sockets:
                    with suppress(OSError):  # it is closed already
                        socket.socket.shutdown(connected, socket.SHUT_RDWR)  # that of TLS would wait for the server
            before = self._received

    @contextmanager
    def _network(self) -> Iterator[None]:
        """Nothing but the network is used in it, so that no error of the disk is taken for one of the connection.

        Raises:
            HTTPError: the server's answer.
            Interrupted: for whatever else happens to a connection, or is wrong with what comes.
        """
        try:
            yield
        except HTTPError:
            raise
        except (OSError, HTTPException, ValueError) as error:  # the last of addresses and lengths
            reason = getattr(error, "reason", error)
            said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise Interrupted(self._slow() or shown(said)) from error
        if self._stalled:
            raise Interrupted(self._slow())

    def _slow(self) -> str:
        return f"less than {SLOWEST} bytes a second came for {self._timeout:g} s" if self._stalled else ""


class _Noted(HTTPConnection):
    """A connection whose socket others may shut down."""

    def __init__(self, *arguments: Any, sockets: list[socket.socket], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._sockets = sockets

    def connect(self) -> None:
        super().connect()
        self._sockets.append(self.sock)


class _NotedSecure(_Noted, HTTPSConnection):
    pass


class _Handler(urllib.AbstractHTTPHandler):
    """HTTP and HTTPS over noted connections."""

    http_request = https_request = urllib.AbstractHTTPHandler.do_request_

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def http_open(self, request: urllib.Request) -> HTTPResponse:
        return self.do_open(partial(_Noted, sockets=self._sockets), request)

    def https_open(self, request: urllib.Request) -> HTTPResponse:
        return self.do_open(partial(_NotedSecure, sockets=self._sockets), request)


def place(response: HTTPResponse, done: int) -> tuple[int, int | None]:
    """Where in the file the response begins, and how long the file is, if the server says so.

    Raises:
        Interrupted: it begins elsewhere.
    """
    if response.status == 206:
        said = response.headers.get("Content-Range", "")
        found = PLACE.fullmatch(said)
        if not found or int(found[1]) != done:
            raise Interrupted(f"it was asked for the bytes from {done} and answers with {shown(said) or 'others'}")
        return done, None if found[2] == "*" else int(found[2])
    whole = response.headers.get("Content-Length", "")
    return 0, int(whole) if re.fullmatch(NUMBER, whole) else None


def version(response: HTTPResponse) -> str:
    """What names this version of the file, byte by byte: its ETag, or when it was changed; "" if nothing does."""
    etag = response.headers.get("ETag", "")
    name = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
    return name if VERSION.fullmatch(name) else ""


def shown(text: str) -> str:
    """What a server says, as much as belongs into a line."""
    return " ".join(text.split())[:SHOWN]
