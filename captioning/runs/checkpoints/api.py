"""Captioners behind an address, not trained here: `checkpoint=api:http://HOST/v1#MODEL`.

B images of 3 colours and a channel that is 0 in the padding, H rows and W columns of pixels.
"""

import io
import json
import logging
import math
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from http.client import HTTPResponse
from multiprocessing.pool import ThreadPool
from socket import SocketIO
from threading import Lock
from typing import Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn

from captioning.backbones.base import Backbone
from captioning.backbones.images import ImageTransform, to_jpeg
from captioning.config.explain import explain
from captioning.config.registry import validate_arguments
from captioning.config.types import Config
from captioning.data.readers.parsing import Text
from captioning.decoding import GeneratedCaption
from captioning.errors import quoted
from captioning.files import LARGEST_ANSWER, read_bytes, sha256, write_text
from captioning.pretrained.api import Asking, api_key, read_address
from captioning.pretrained.fetch import MAX_WAIT, TRANSIENT, Unavailable
from captioning.pretrained.library import API, DATA, UNTRAINED
from captioning.pretrained.named import user_cache
from captioning.runs.checkpoints.networks import DecodedText, Network

log = logging.getLogger(__name__)
MOST_IN_A_ROW = 10
"""Images without an answer (D), after which no further ones are sent."""
FILTERED = "content_filter"
UNASKED = "not asked, as decoding.budget is spent"
KEPT = "answers are kept, and the same command asks for the missing ones alone"


class SentImages(Backbone):
    """In place of a backbone: images as they are, since a server looks at them."""

    located = False

    def context_of(self, inputs: Tensor) -> Any:
        return inputs


class _Message(BaseModel):
    content: Text | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Answer(BaseModel):
    choices: list[_Choice] = Field(max_length=1000)  # `n_best` cannot ask for more

    def caption(self, most: int) -> GeneratedCaption:
        """The first texts, or an empty one and the reason."""
        texts = [text for c in self.choices if (text := (c.message.content or "").strip())]
        refused = any(c.message.refusal or c.finish_reason == FILTERED for c in self.choices)
        return _caption(texts[:most], "refused by the server" if refused else "an empty answer")


def _caption(texts: Sequence[str], problem: str) -> GeneratedCaption:
    """The first of the texts, the others as alternatives; the problem is that there is none."""
    first, *others = [GeneratedCaption([*t.encode()], math.nan, None) for t in texts or [""]]
    return replace(first, alternatives=others, problem="" if texts else problem)


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
    """A search that asks a server; each answer is kept in a file, and asked for once."""

    def __init__(self, setting: str, how: Asking):
        # here, because most commands ask nobody; it uses no proxy, unlike `requests`
        from urllib3 import PoolManager

        address, key = read_address(setting), api_key()
        self._how, self._url = how, f"{address['base']}/chat/completions"
        fields = {
            "model": address["model"],
            "max_tokens": how.max_length,
            "temperature": how.temperature,
            "seed": how.seed,
            "n": how.n_best,
        }
        self._request = {k: x for k, x in fields.items() if x is not None and k not in how.omit}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._pool = PoolManager(maxsize=how.requests, retries=False, headers=headers)
        pool = self._pool.connection_from_url(self._url)
        pool.ConnectionCls = type("", (pool.ConnectionCls,), {"response_class": _Response})
        self._left, self._in_a_row = iter(range(how.budget or 10**9)), 0

    def __call__(self, model: Any, images: Tensor) -> list[GeneratedCaption]:
        """Captions of images `[B, 4, H, W]`."""
        self._asking: dict[str, Lock] = {}
        # after an error or a signal it does not wait for its threads, which end with the process
        with ThreadPool(self._how.requests) as pool:
            return list(pool.imap(self._ask, images))

    def _ask(self, image: Tensor) -> GeneratedCaption:
        jpeg = to_jpeg(image, self._how.quality)
        url = f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"
        picture = {"type": "image_url", "image_url": {"url": url}}
        content = [{"type": "text", "text": self._how.prompt}, picture]
        request = {**self._request, "messages": [{"role": "user", "content": content}]}
        try:
            answer = self._answer(request)
        except ValueError as error:
            problem = quoted(explain(error))
            self._in_a_row += problem != UNASKED
            if self._in_a_row >= MOST_IN_A_ROW:
                raise Unavailable(f"{MOST_IN_A_ROW} images in a row: {problem}; {KEPT}") from error
            return _caption([], problem)
        self._in_a_row = 0
        return answer.caption(self._how.n_best)

    def _answer(self, request: Config) -> _Answer:
        """The kept answer; without one, or if it is damaged, the server's, which is kept."""
        digest = sha256(json.dumps([self._url, request]))
        file = user_cache() / "answers" / f"{digest}.json"
        with self._asking.setdefault(digest, Lock()):  # once about equal images
            try:
                return _Answer.model_validate_json(read_bytes(file))
            except (OSError, ValueError):
                answer = _Answer.model_validate_json(self._post(request))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)  # a link stays no link
            write_text(file, answer.model_dump_json())
        return answer

    def _post(self, request: Config) -> bytes:
        """The body of an answer, asked for again where that may help."""
        from urllib3.exceptions import HTTPError
        from urllib3.util import Retry

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


def count_problems(captions: Sequence[GeneratedCaption]) -> Config:
    """For the provenance: images without a caption, whose empty ones are scored as any other.

    Refuse it if none has a caption, or if some were not asked.
    """
    problems = dict(Counter(caption.problem for caption in captions if caption.problem))
    if not problems:
        return {}
    if UNASKED in problems or sum(problems.values()) == len(captions):
        raise Unavailable(f"nothing is scored without captions: {quoted(problems)}; {KEPT}")
    log.warning("images without a caption, scored as an empty one: %s", quoted(problems))
    return {"without_caption": problems}


def load_api(setting: str, decoding: Config) -> tuple[Any, ...]:
    """The parts of a `TrainedCaptioner` that asks a server."""
    validate_arguments("decoding", Asking, decoding)
    how, device = Asking(**decoding), torch.device("cpu")
    transform = ImageTransform(how.size, resize="pad", interpolation="lanczos")
    images = SentImages("api", nn.Identity(), 1, (1, 1), transform, True)
    title = f"{quoted(setting.removeprefix(API))}, {UNTRAINED}"
    network = Network(images, nn.Identity(), device, title)  # type: ignore[arg-type]
    config = {"data": DATA, "decoding": {"_target_": "chat", **asdict(how)}, "model": {}}
    vocabulary = DecodedText(lambda ids: bytes(ids).decode())
    return config, vocabulary, [network], Chat(setting, how), device
