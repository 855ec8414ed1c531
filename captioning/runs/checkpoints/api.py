"""Captioners behind an address, not trained here: `checkpoint=api:http://HOST/v1#MODEL`.

B images of 3 colours and a channel that is 0 in the padding, H rows and W columns of pixels.
"""

import json
import logging
import math
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from hashlib import sha256
from threading import Event
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from captioning.backbones.base import Backbone
from captioning.backbones.images import ImageTransform, to_jpeg
from captioning.config.explain import explain
from captioning.config.registry import validate_arguments
from captioning.config.types import (
    Config,
    Count,
    Length,
    NotNegative,
    PixelSize,
    PositiveInt,
    Seconds,
    Seed,
    validated_class,
)
from captioning.data.readers.parsing import Text
from captioning.decoding import GeneratedCaption
from captioning.errors import quoted
from captioning.files import LARGEST_ANSWER, read_bytes, write_text
from captioning.pretrained.api import api_key, read_address
from captioning.pretrained.fetch import BLOCK, MAX_WAIT, TRANSIENT, Unavailable
from captioning.pretrained.library import API, DATA, UNTRAINED
from captioning.pretrained.named import user_cache
from captioning.runs.checkpoints.networks import DecodedText, Network

log = logging.getLogger(__name__)
MOST_IN_A_ROW = 10
"""Images without an answer (D), after which no further ones are sent."""
FILTERED = "content_filter"
UNASKED = "not asked, as decoding.budget is spent"
KEPT = "answers are kept, and the same command asks for the missing ones alone"


@validated_class
class Asking:
    """Settings of `decoding`: what is asked of each image, and how; their values are (D)."""

    prompt: str = "Describe the image in one short sentence."
    max_length: Length = 100
    temperature: NotNegative = 0
    seed: Seed | None = None
    n_best: Count = 1
    omit: Sequence[str] = ()
    size: PixelSize = 768
    quality: Count = 90
    requests: Count = 8
    timeout: Seconds = 120
    tries: Count = 5
    backoff: Seconds = 1
    budget: PositiveInt | None = None


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
    choices: list[_Choice]

    def caption(self, most: int) -> GeneratedCaption:
        """The first texts, or an empty one and the reason."""
        texts = [text for c in self.choices if (text := (c.message.content or "").strip())]
        refused = any(c.message.refusal or c.finish_reason == FILTERED for c in self.choices)
        return _caption(texts[:most], "refused by the server" if refused else "an empty answer")


def _caption(texts: Sequence[str], problem: str) -> GeneratedCaption:
    """The first of the texts, the others as alternatives; the problem is that there is none."""
    first, *others = [GeneratedCaption([*t.encode()], math.nan, None) for t in texts or [""]]
    return replace(first, alternatives=others, problem="" if texts else problem)


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
        self._left = iter(range(how.budget or 10**9))
        self._stopped, self._in_a_row = Event(), 0

    def __call__(self, model: Any, images: Tensor) -> list[GeneratedCaption]:
        """Captions of images `[B, 4, H, W]`."""
        self._stopped.clear()
        with ThreadPoolExecutor(self._how.requests) as pool:  # which waits for those under way
            try:
                return list(pool.map(self._ask, images))
            finally:
                self._stopped.set()

    def _ask(self, image: Tensor) -> GeneratedCaption:
        jpeg = to_jpeg(image, self._how.quality)
        url = f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"
        picture = {"type": "image_url", "image_url": {"url": url}}
        content = [{"type": "text", "text": self._how.prompt}, picture]
        request = {**self._request, "messages": [{"role": "user", "content": content}]}
        digest = sha256(json.dumps([self._url, request]).encode()).hexdigest()
        file = user_cache() / "answers" / f"{digest}.json"
        try:
            if not file.exists():
                answer = _Answer.model_validate_json(self._post(request))
                file.parent.mkdir(parents=True, exist_ok=True)
                write_text(file, answer.model_dump_json())
            answer = _Answer.model_validate_json(read_bytes(file))
        except ValueError as error:
            problem = quoted(explain(error))
            self._in_a_row += problem != UNASKED
            if self._in_a_row >= MOST_IN_A_ROW:
                raise Unavailable(f"{MOST_IN_A_ROW} images in a row: {problem}; {KEPT}") from error
            return _caption([], problem)
        self._in_a_row = 0
        return answer.caption(self._how.n_best)

    def _post(self, request: Config) -> bytes:
        """The body of an answer, asked for again where that may help."""
        from urllib3.exceptions import HTTPError
        from urllib3.util import Retry

        how, problem, wait = self._how, "", 0.0
        for failures in range(how.tries):
            if self._stopped.wait(min(wait, MAX_WAIT)):
                break
            if next(self._left, None) is None:
                raise ValueError(UNASKED)
            wait, body, end = how.backoff * 2**failures, b"", time.monotonic() + how.timeout
            try:
                with self._pool.request(
                    "POST",
                    self._url,
                    json=request,
                    redirect=False,
                    preload_content=False,
                    timeout=how.timeout,
                ) as response:
                    while block := response.read1(BLOCK, decode_content=False):
                        body += block
                        if len(body) > LARGEST_ANSWER or time.monotonic() > end:
                            raise TimeoutError("an answer was too large, or took too long")
                    if response.status == 200 and b'"choices"' in body:
                        return body
                    problem = f"HTTP {response.status}, {body.decode(errors='replace')}"
                    if response.status not in TRANSIENT:
                        break
                    wait = max(wait, Retry().get_retry_after(response) or 0)
            except (HTTPError, OSError) as error:
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
