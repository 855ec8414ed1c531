"""Servers in this process, and a captioner with known words and maps."""

import json
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPMessage
from typing import NamedTuple
from urllib.parse import quote

import torch

from captioning.backbones.scratch import SmallCNN
from captioning.data.vocabulary import Vocabulary
from captioning.models import Captioner, Step
from captioning.runs.checkpoints.networks import Network
from captioning.serve.captions import CaptionUploads, ServedCaptioner, upload_page
from captioning.serve.server import PageServer
from captioning.tokens import EOS

GRID = 4
SAID = ("a", "red", "<b>circle</b>")
CORNERS = ((0, 0), (0, 3), (3, 0))  # where each word looked
HEAD = (3, 3)  # where the second head looked for every word
QUANTILES = [-3 + i / 40 for i in range(101)]  # of the scores of validation captions
RUN = {
    "_target_": "captioning.decoding.beam_search",
    "width": 4,
    "length_penalty": 1.0,
    "normalisation": "length",
    "early_stopping": False,
    "max_length": 9,
    "n_best": 1,
    "filters": {"_target_": "captioning.decoding.Filters"},
}


@dataclass(frozen=True)
class Said:
    count: int

    def reorder(self, parents):
        return self


class Reciting(Captioner):
    """Recites its vocabulary, or with a smaller probability any other word."""

    forward = readout = None  # it is never trained

    def __init__(self, attends):
        super().__init__()
        self.attends = attends

    def start(self, context, n):
        return Said(0)

    def step(self, tokens, state):
        logits = torch.zeros(*tokens.shape, 4 + len(SAID))
        logits[..., 4 + state.count if state.count < len(SAID) else EOS] = 3.0
        looked = (
            corner(CORNERS[min(state.count, 2)]).expand(*tokens.shape, -1) if self.attends else None
        )
        return Step(logits, looked, Said(state.count + 1))

    def attention_maps(self, context, tokens):
        first = torch.stack([corner(CORNERS[min(i, 2)]) for i in range(tokens.shape[-1])])
        return {"inter": torch.stack([first, corner(HEAD).expand_as(first)], dim=1)[None, None]}


def corner(cell):
    weights = torch.full((GRID, GRID), 0.01)
    weights[cell] = 0.85
    return weights.flatten()


def reciting(title, attends=True, max_tokens=None):
    network = Network(
        SmallCNN(4, 16, GRID, resize="crop"), Reciting(attends), torch.device("cpu"), title
    )
    config = {"decoding": RUN, "model": {"max_tokens": max_tokens}}
    captioner = ServedCaptioner(
        config, Vocabulary(SAID), [network], lambda *_: [], torch.device("cpu"), QUANTILES
    )
    captioner.title = title
    return captioner


@contextmanager
def served(routes, host="127.0.0.1"):
    server = PageServer(*routes, host, 0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()


def two_captioners(**limits):
    captioners = [reciting("one"), reciting("two", attends=False, max_tokens=12)]
    limits = {"megabytes": 1, "megapixels": 1, "waiting": 2} | limits
    return upload_page(CaptionUploads(captioners, **limits))


class Answer(NamedTuple):
    status: int
    headers: HTTPMessage
    content: bytes


def ask(server, target, method="GET", content=None, **headers):
    """The answer to a target as it is; `_` in a header's name stands for `-`, None leaves a usual
    header out.
    """
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=600)) as connection:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": f"127.0.0.1:{server.port}"} | headers).items():
            if value is not None:
                connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(content)
        answer = connection.getresponse()
        return Answer(answer.status, answer.msg, answer.read())


def post(server, content, settings=None, query=None, **headers):
    """As the page posts."""
    text = (
        f"settings={quote(json.dumps(settings or {'decoding': 'greedy'}))}"
        if query is None
        else query
    )
    usual = {"Origin": f"http://127.0.0.1:{server.port}"}
    return ask(
        server,
        f"/captions?{text}",
        "POST",
        content,
        **(usual | {"Content_Length": str(len(content))} | headers),
    )
