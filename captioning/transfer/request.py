"""HTTP requests whose answers come within bounds of time, or end in `Interrupted`."""

import logging
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from captioning.errors import quoted

if TYPE_CHECKING:
    import requests

BLOCK = 1 << 20
TRANSIENT = (408, 416, 425, 429, 500, 502, 503, 504)
NUMBER = r"[0-9]{1,18}"
RANGE = re.compile(rf"bytes ({NUMBER})-{NUMBER}/({NUMBER}|\*)")
VERSION = re.compile(r"[\x20-\x7e]{1,200}")

T = TypeVar("T")


class Interrupted(Exception):
    """A transfer ended early; unless `final`, another try may continue it."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


def ask(method: str, url: str, timeout: float, token: str | None = None, **headers: str) -> "requests.Response":
    """Send a request and wait for the headers of its answer; `token` goes to this server alone."""
    import requests  # here, because most commands download nothing

    logging.getLogger("urllib3").setLevel(logging.ERROR)  # its warnings quote what servers send

    def authorise(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    headers |= {"User-Agent": "captioning", "Accept-Encoding": "identity"}
    # A plain header with the token would give way to `~/.netrc`. Requests drops it where another server is asked.
    settings: dict[str, Any] = {
        "headers": headers,
        "auth": authorise,
        "allow_redirects": True,
        "stream": True,
        "timeout": timeout,
    }
    with _network():
        return within(2 * timeout, partial(requests.request, method, url, **settings))


def check_status(response: "requests.Response") -> None:
    """Raise `Interrupted` unless the file or a part of it follows."""
    status = response.status_code
    if status not in (200, 206):
        reason = f"the server answers {quoted(f'{status} {response.reason}')}"
        raise Interrupted(reason, final=status >= 400 and status not in TRANSIENT)


def blocks(response: "requests.Response", end: float) -> Iterator[bytes]:
    """Body as it comes, until `end` of the monotonic clock."""
    while True:
        with _network():
            block = response.raw.read1(BLOCK, decode_content=False)  # `read` loses its beginning when it fails
        if not block:
            return
        if time.monotonic() > end:
            raise Interrupted("it takes longer than its size allows", final=True)
        yield block


def span(response: "requests.Response", done: int) -> tuple[int, int | None]:
    """First byte of an answer, and length of the complete file where it is known."""
    if response.status_code == 200:
        size = response.headers.get("Content-Length", "")
        return 0, int(size) if re.fullmatch(NUMBER, size) else None
    sent = response.headers.get("Content-Range", "")
    match = RANGE.fullmatch(sent)
    if not match or int(match[1]) != done:
        raise Interrupted(f"asked for the bytes from {done}, the server sends {quoted(sent) or 'others'}")
    return done, None if match[2] == "*" else int(match[2])


def version(response: "requests.Response") -> str:
    """Strong ETag or date of the file on the server, for If-Range; "" if there is neither."""
    etag = response.headers.get("ETag", "")
    name = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
    return name if VERSION.fullmatch(name) else ""


def within(seconds: float, function: Callable[[], T]) -> T:
    """Result of a function in a thread of its own, abandoned with `TimeoutError` after so many seconds."""
    # The timeout of a request bounds every read, and a header may come byte by byte.
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    return outcome.result(seconds)


@contextmanager
def _network() -> Iterator[None]:
    # Only the network is used inside, so that a full disk is not taken for a lost connection. Of malformed answers
    # requests, urllib3 and http.client raise a dozen kinds of exceptions.
    try:
        yield
    except Exception as error:
        cause: BaseException = error
        while further := cause.__cause__ or cause.__context__:
            cause = further
        reason = getattr(cause, "strerror", None) or str(cause) or "no complete answer in time"
        raise Interrupted(quoted(reason)) from error
