"""Ask a server of chats what it sees on images: `POST /v1/chat/completions`.

Every answer is kept in the user's cache and asked for once. The key for the server, if it needs
one, is in the environment, in the variable `KEY`, and in no file or message.
"""

import io
import json
import os
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPResponse
from multiprocessing.pool import ThreadPool
from pathlib import Path
from socket import SocketIO
from threading import Lock
from typing import Annotated, Any, Self

from annotated_types import Interval
from PIL import Image
from pydantic import BaseModel, Field, model_validator
from urllib3 import PoolManager  # which uses no proxy
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from captioning.config.explain import explain
from captioning.config.settings import Settings
from captioning.config.types import (
    Config,
    Count,
    Length,
    NotNegative,
    PixelSize,
    PositiveInt,
    Seconds,
    Seed,
)
from captioning.data.images import load_image
from captioning.data.pixels import to_rgb
from captioning.data.readers.parsing import Text
from captioning.errors import SECRETS, CaptioningError, quoted
from captioning.files import read_bytes, sha256, write_text
from captioning.pretrained.fetch import MAX_WAIT, TRANSIENT, Unavailable
from captioning.pretrained.named import user_cache

KEY = "CAPTIONING_API_KEY"
ADDRESS = re.compile(
    r"(?P<base>(?P<scheme>https?)://(?P<server>(?P<host>[\w.-]+|\[[0-9a-f:]+\])(:\d+)?)"
    r"(/[^\s?#@]*[^\s?#@/])?)/?#(?P<model>\S+)",
    re.ASCII,
)
THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")
LARGEST_ANSWER = 2**20
"""Bytes of an answer, with its headers."""
MOST_IN_A_ROW = 10
"""Images without an answer (D), after which no further ones are sent."""
FILTERED = "content_filter"
UNASKED = "not asked, as the budget is spent"
KEPT = "answers are kept, and the same command asks for the missing ones alone"


class Asking(Settings):
    """What is asked of each image, and how."""

    address: str
    """http://HOST/v1#MODEL, which is asked at http://HOST/v1/chat/completions"""
    prompt: str
    """text before each image"""
    max_length: Length
    """the most tokens of an answer"""
    temperature: NotNegative
    """of sampling; 0: the most probable words"""
    seed: Seed | None
    """of sampling"""
    n_best: Count
    """captions of each image"""
    omit: Sequence[str]
    """fields of a request that the server does not know, such as [temperature, seed]"""
    size: PixelSize
    """pixels of the longer side of the images that are sent"""
    quality: Annotated[int, Interval(ge=1, le=100)]
    """of these JPEG files"""
    requests: Count
    """images that are asked about at once"""
    timeout: Seconds
    """seconds for an answer"""
    tries: Count
    """the most requests about an image, after no answer, HTTP 429 or 5xx"""
    backoff: Seconds
    """seconds before the second of them; doubled for each further one"""
    budget: PositiveInt | None
    """the most requests of this command"""

    @property
    def place(self) -> re.Match[str]:
        """The parts of the address."""
        found = ADDRESS.fullmatch(self.address)
        if not found:
            raise CaptioningError(
                f"address={quoted(self.address)} is not allowed; it must be http://HOST/v1#MODEL"
            )
        return found

    @model_validator(mode="after")
    def _keeps_the_key(self) -> Self:
        """Refuse what is no address, and a key that others could read on its way."""
        host = self.place["host"]
        if api_key() and self.place["scheme"] == "http" and host not in THIS_MACHINE:
            raise CaptioningError(
                f"{KEY} would go to {host} without encryption: name the server by https://, or "
                "unset the variable if it needs no key"
            )
        return self


def api_key() -> str:
    """The user's key or nothing; no message shows it from now on."""
    key = "".join(os.environ.get(KEY, "").split())
    SECRETS.update({key} if key else ())
    return key


@dataclass(frozen=True)
class Answer:
    """The captions of an image.

    Attributes:
        captions: one or several; an empty one if the server gave none; no caption at all if the
            image cannot be read.
        problem: why there is none.
    """

    captions: Sequence[str]
    problem: str = ""


class _Message(BaseModel):
    content: Text | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Reply(BaseModel):
    choices: list[_Choice] = Field(max_length=1000)  # `n_best` cannot ask for more

    def answer(self, most: int) -> Answer:
        """The first texts, or an empty one and the reason."""
        texts = [" ".join((choice.message.content or "").split()) for choice in self.choices]
        captions = list(filter(None, texts))[:most]
        if captions:
            return Answer(captions)
        refused = any(c.message.refusal or c.finish_reason == FILTERED for c in self.choices)
        return Answer([""], "refused by the server" if refused else "an empty answer")


class _Arriving(SocketIO):
    """What a socket brings of one answer: little, and before a moment, however slowly it comes."""

    def __init__(self, socket: Any):
        super().__init__(socket, "r")
        self._socket, self._left = socket, LARGEST_ANSWER
        self._end = time.monotonic() + socket.gettimeout()

    def readinto(self, buffer: Any) -> int | None:
        seconds = self._end - time.monotonic()
        if min(seconds, self._left) <= 0:
            raise OSError("an answer was too large, or took too long")
        self._socket.settimeout(seconds)
        number = super().readinto(memoryview(buffer)[: self._left])
        self._left -= number or 0
        return number


class _Response(HTTPResponse):
    """Reads the status, the headers, the content and what follows it from `_Arriving`."""

    def __init__(self, socket: Any, *args: Any, **more: Any):
        super().__init__(socket, *args, **more)
        # the first one keeps the socket open
        self._usual, self.fp = self.fp, io.BufferedReader(_Arriving(socket))


class Chat:
    """Asks a server about images."""

    def __init__(self, how: Asking):
        self._how, self._url = how, f"{how.place['base']}/chat/completions"
        fields = {
            "model": how.place["model"],
            "max_tokens": how.max_length,
            "temperature": how.temperature,
            "seed": how.seed,
            "n": how.n_best,
        }
        self._request = {k: x for k, x in fields.items() if x is not None and k not in how.omit}
        key = api_key()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._pool = PoolManager(maxsize=how.requests, retries=False, headers=headers)
        pool = self._pool.connection_from_url(self._url)
        pool.ConnectionCls = type("", (pool.ConnectionCls,), {"response_class": _Response})
        self._left, self._in_a_row = iter(range(how.budget or 10**9)), 0
        self._given_up = ""  # why, once too many images have had no answer
        self._asking: dict[str, Lock] = {}  # by the digest of the request

    def captions(self, files: Sequence[Path]) -> Iterator[Answer]:
        """The answer about each image, in order."""
        # after an error or a signal it does not wait for its threads, which end with the process
        with ThreadPool(self._how.requests) as pool:
            yield from pool.imap(self._ask, files)

    def _ask(self, file: Path) -> Answer:
        if self._given_up:
            raise Unavailable(self._given_up)
        try:
            jpeg = to_jpeg(file, self._how.size, self._how.quality)
        except CaptioningError as error:
            return Answer([], str(error))
        url = f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"
        picture = {"type": "image_url", "image_url": {"url": url}}
        content = [{"type": "text", "text": self._how.prompt}, picture]
        request = {**self._request, "messages": [{"role": "user", "content": content}]}
        try:
            reply = self._reply(request)
        except ValueError as error:
            problem = quoted(explain(error))
            self._in_a_row += problem != UNASKED
            if self._in_a_row >= MOST_IN_A_ROW:
                self._given_up = f"{MOST_IN_A_ROW} images in a row: {problem}; {KEPT}"
                raise Unavailable(self._given_up) from error
            return Answer([""], problem)
        self._in_a_row = 0
        return reply.answer(self._how.n_best)

    def _reply(self, request: Config) -> _Reply:
        """The kept answer; without one, or if it is damaged, the server's, which is kept."""
        digest = sha256(json.dumps([self._url, request]))
        file = user_cache() / "answers" / f"{digest}.json"
        with self._asking.setdefault(digest, Lock()):  # once about equal images
            try:
                return _Reply.model_validate_json(read_bytes(file))
            except (OSError, ValueError):
                reply = _Reply.model_validate_json(self._post(request))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)  # a link stays no link
            write_text(file, reply.model_dump_json())
        return reply

    def _post(self, request: Config) -> bytes:
        """The body of an answer, asked for again where that may help."""
        how, problem, wait = self._how, "", 0.0
        for failures in range(how.tries):
            time.sleep(min(wait, MAX_WAIT))
            if next(self._left, None) is None:
                raise ValueError(UNASKED)
            wait = how.backoff * 2**failures
            try:
                answer = self._pool.request(
                    "POST",
                    self._url,
                    json=request,
                    redirect=False,
                    decode_content=False,
                    timeout=how.timeout,
                )
                if answer.status == 200 and b'"choices"' in answer.data:
                    return answer.data
                problem = f"HTTP {answer.status}, {answer.data.decode(errors='replace')}"
                if answer.status not in TRANSIENT:
                    break
                wait = max(wait, Retry().get_retry_after(answer) or 0)
            except (HTTPError, OSError, MemoryError) as error:  # a server may announce terabytes
                problem = str(error)
        raise ValueError(problem)


def to_jpeg(file: Path, size: int, quality: int) -> bytes:
    """A JPEG file of an upright image in red, green and blue, `size` pixels on its longer side."""
    with load_image(file, 2 * size) as image:
        colours, longest = to_rgb(image), max(image.size)
        width, height = (max(1, round(size * side / longest)) for side in image.size)
        target = io.BytesIO()
        colours.resize((width, height), Image.Resampling.LANCZOS).save(
            target, "JPEG", quality=quality
        )
        return target.getvalue()
