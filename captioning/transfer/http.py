"""One request over HTTP whose answer is bounded in time and checked in form, whatever the server says.

`http.client` waits for each byte separately, so a server that sends one now and then, or headers without end, would
keep it for ever; and it raises whatever its parts raise of headers, addresses and lengths that are none.
"""

import io
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any
from urllib import request as urllib
from urllib.error import HTTPError
from urllib.parse import urlsplit

from captioning.errors import CaptioningError, quoted
from captioning.transfer.archive import BLOCK

TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same request may succeed."""
SLOWEST = 1000
"""Bytes per second: a connection that brings less for as long as `timeout` counts as lost."""

NUMBER = r"[0-9]{1,18}"
PLACE = re.compile(rf"bytes ({NUMBER})-{NUMBER}/({NUMBER}|\*)")
VERSION = re.compile(r"[\x20-\x7e]{1,200}")


class Interrupted(Exception):
    """The transfer ended early; a later try may go on with it."""


class Unavailable(CaptioningError):
    """There is no way to the server, or it does not have the file."""


class Request:
    """A request for the bytes of a file from one place on.

    Args:
        url: the address.
        timeout: seconds of silence after which the connection counts as lost. The answer must begin within twice as
            long, and then bring at least `SLOWEST` bytes a second.
        done: how many bytes are there already.
        version: what the server called the file that they are from; it sends all of it, if it is another one by now.
        token: that the server knows the user by; it goes to no other one.
        end: of the whole transfer, however much comes, in seconds of the monotonic clock.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        done: int = 0,
        version: str = "",
        token: str | None = None,
        end: float = math.inf,
    ) -> None:
        self._url, self._done, self._version, self._timeout = url, done, version, timeout
        self._token, self._end = token, end
        self._deadline = time.monotonic() + 2 * timeout
        self._received = self._received_before = 0
        self.responses: list[HTTPResponse] = []
        """Several where the first ones say to ask elsewhere."""

    def answer(self, method: str = "GET", enough: str | None = None) -> HTTPResponse:
        """The server's answer, 200 or 206.

        Args:
            method: `HEAD` for the headers alone.
            enough: a header that makes a redirect an answer as well, by `HTTPError`.

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
            _Handler(self),
            _Redirects(self._token, enough),
            urllib.HTTPErrorProcessor(),
            urllib.HTTPDefaultErrorHandler(),
            urllib.UnknownHandler(),
        ):
            opener.add_handler(handler)
        asked = urllib.Request(self._url, headers=headers, method=method)
        _authorise(asked, self._token)
        try:
            with _network():
                response: HTTPResponse = opener.open(asked, timeout=self._timeout)
            if response.status not in (200, 206):
                raise Interrupted(f"it answers {quoted(f'{response.status} {response.reason}')}")
        except BaseException:
            for unwanted in self.responses:
                unwanted.close()
            raise
        return response

    def blocks(self, response: HTTPResponse) -> Iterator[bytes]:
        """What comes, as it comes: a longer read would lose its beginning when the connection ends in the middle.

        Raises:
            Interrupted: the connection was lost.
        """
        while True:
            with _network():
                block = response.read1(BLOCK)
            if not block:
                return
            self._received += len(block)
            yield block

    def check_pace(self) -> None:
        """Looks at the time, before every read of the connection.

        Raises:
            TimeoutError: too little of the file has come for too long, or not all of it in time.
        """
        now = time.monotonic()
        if now > self._end:
            raise TimeoutError("it took longer than its size allows")
        if now > self._deadline:
            if self._received - self._received_before < SLOWEST * self._timeout:
                raise TimeoutError(f"less than {SLOWEST} bytes a second came for {self._timeout:g} s")
            self._received_before, self._deadline = self._received, now + self._timeout


@contextmanager
def _network() -> Iterator[None]:
    """Nothing but the network is used in it, so that no error of the disk is taken for one of the connection.

    Raises:
        HTTPError: the server's answer.
        Interrupted: for whatever else happens to a connection, or is wrong with what comes.
    """
    try:
        yield
    except HTTPError:
        raise
    except Exception as error:  # `OverflowError` of a port, `UnicodeError` of a host, ..
        reason = getattr(error, "reason", error)
        said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise Interrupted(quoted(said)) from error


class _Paced(io.RawIOBase):
    """What comes over a connection, at a pace that is looked at."""

    def __init__(self, raw: io.RawIOBase, request: Request) -> None:
        self._raw, self._request = raw, request

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._request.check_pace()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _response(request: Request, *arguments: Any, **settings: Any) -> HTTPResponse:
    response = HTTPResponse(*arguments, **settings)
    response.fp = io.BufferedReader(_Paced(response.fp.detach(), request))
    request.responses.append(response)
    return response


def _connection(kind: type[HTTPConnection], request: Request, *arguments: Any, **settings: Any) -> HTTPConnection:
    connection = kind(*arguments, **settings)
    connection.response_class = partial(_response, request)  # type: ignore[assignment]
    return connection


def _authorise(asked: urllib.Request, token: str | None) -> None:
    if token:  # unredirected: urllib takes all other headers along to wherever the server sends it
        asked.add_unredirected_header("Authorization", f"Bearer {token}")


class _Redirects(urllib.HTTPRedirectHandler):
    """Follows a server elsewhere, without the token where that is another server."""

    def __init__(self, token: str | None, enough: str | None) -> None:
        self._token, self._enough = token, enough

    def redirect_request(
        self, asked: urllib.Request, answer: Any, code: int, reason: str, headers: Any, url: str
    ) -> urllib.Request | None:
        answer.close()  # or urllib would read its body, to the end if there is one
        if self._enough and self._enough in headers:
            return None
        further = super().redirect_request(asked, answer, code, reason, headers, url)
        if further is not None:
            further.method = asked.get_method()  # before Python 3.13 a HEAD becomes a GET
            if urlsplit(further.full_url)[:2] == urlsplit(asked.full_url)[:2]:
                _authorise(further, self._token)
        return further


class _Handler(urllib.AbstractHTTPHandler):
    """HTTP and HTTPS at a pace."""

    http_request = https_request = urllib.AbstractHTTPHandler.do_request_

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    def http_open(self, asked: urllib.Request) -> HTTPResponse:
        return self.do_open(partial(_connection, HTTPConnection, self._request), asked)

    def https_open(self, asked: urllib.Request) -> HTTPResponse:
        return self.do_open(partial(_connection, HTTPSConnection, self._request), asked)


def place(response: HTTPResponse, done: int) -> tuple[int, int | None]:
    """Where in the file the response begins, and how long the file is, if the server says so.

    Raises:
        Interrupted: it begins elsewhere.
    """
    if response.status == 206:
        said = response.headers.get("Content-Range", "")
        found = PLACE.fullmatch(said)
        if not found or int(found[1]) != done:
            raise Interrupted(f"it was asked for the bytes from {done} and answers with {quoted(said) or 'others'}")
        return done, None if found[2] == "*" else int(found[2])
    whole = response.headers.get("Content-Length", "")
    return 0, int(whole) if re.fullmatch(NUMBER, whole) else None


def version(response: HTTPResponse) -> str:
    """What names this version of the file, byte by byte: its ETag, or when it was changed; "" if nothing does."""
    etag = response.headers.get("ETag", "")
    name = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
    return name if VERSION.fullmatch(name) else ""
