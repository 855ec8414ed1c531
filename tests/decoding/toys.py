"""Captioners small enough to know everything about, and what the searches' answers are held
against.

B images, N hypotheses, C positions, V words, L context vectors.
"""

import math
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from models.captioners import build
from models.tensors import close, normal
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models import CaptionOutput, Step
from captioning.tokens import BOS, EOS

SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class TableState:
    """The words so far as one number in base V, `[B, N]`."""

    image: Tensor
    code: Tensor

    def reorder(self, parents):
        return replace(self, code=self.code.gather(1, parents))


class Table:
    """Any function of image and prefix: `logits` `[images, V^max_tokens, V]`, `maps` `[images,
    V^max_tokens, L]`.

    An image's context holds its number, so that images can come in any order.
    """

    def __init__(self, logits, maps, max_tokens):
        self.logits, self.maps, self.max_tokens = logits, maps, max_tokens
        self.steps = 0

    def start(self, context, n):
        image = context.vectors[:, 0, 0].long()
        return TableState(image, torch.zeros(len(image), n, dtype=torch.long))

    def step(self, tokens, state):
        self.steps += 1
        assert tokens.shape == state.code.shape
        state = replace(state, code=state.code * self.logits.shape[-1] + tokens)
        assert (state.code < self.logits.shape[1]).all(), "more tokens than max_tokens"
        rows = state.image[:, None].expand_as(state.code), state.code
        return Step(self.logits[rows], None if self.maps is None else self.maps[rows], state)

    def __call__(self, context, tokens, need_weights=False):
        steps, state = [], self.start(context, tokens.shape[1])
        for t in range(tokens.shape[2]):
            steps.append(self.step(tokens[..., t], state))
            state = steps[-1].state
        maps = None
        if need_weights and self.maps is not None:
            maps = torch.stack([step.attention for step in steps], dim=2)
        return CaptionOutput(torch.stack([step.logits for step in steps], dim=2), maps)

    def readout(self, hidden):
        return hidden


def pictures(numbers):
    """Images of a `Table`."""
    return ContextSet(torch.tensor(numbers, dtype=torch.float64).view(-1, 1, 1), (1, 1))


def table(seed, words=2, max_tokens=4, images=5, eos=0.0, spread=2.0, attention=True):
    """Random logits for `words` words beside the four special tokens; `eos` is added to the logits
    of EOS.
    """
    v = 4 + words
    logits = spread * normal(images, v**max_tokens, v, seed=seed)
    logits[..., EOS] += eos
    maps = normal(images, v**max_tokens, 3, seed=seed + 1).softmax(-1)
    return Table(logits, maps if attention else None, max_tokens)


COLOURS, RED, BLUE = 6, 4, 5
"""Words of a table by hand, the four special tokens among them, and the two others."""


def by_hand(answers):
    """A table for one image of up to 4 steps from probabilities after some prefixes; what is not
    told is impossible.

    The maps tell the place of a prefix among the answers.
    """
    logits = torch.zeros(1, COLOURS**4, COLOURS, dtype=torch.float64)
    maps = torch.zeros(1, COLOURS**4, 2, dtype=torch.float64)
    for count, (prefix, probabilities) in enumerate(answers.items()):
        code = 0
        for token in (BOS, *prefix):
            code = code * COLOURS + token
        maps[0, code] = torch.tensor([count, -count])
        logits[0, code] = -torch.inf
        for token, probability in probabilities.items():
            logits[0, code, token] = math.log(probability)
    return Table(logits, maps, 4)


def talkative(name, seed=0, **changes):
    """A captioner of the registry that says more than one thing."""
    model = build(name, seed, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3
    return model


def take(context, rows):
    """Some images of `context`."""
    mask = None if context.mask is None else context.mask[list(rows)]
    return ContextSet(context.vectors[list(rows)], context.grid, mask)


@torch.no_grad()
def parallel(model, context, i, tokens):
    """Log-probability of each token that image `i` is said to show, and the maps `[T, L]`, by
    teacher forcing.
    """
    inputs = torch.tensor([BOS, *tokens[:-1]]).view(1, 1, -1)
    output = model(take(context, [i]), inputs, need_weights=True)
    log_probs = model.readout(output.hidden)[0, 0].double().log_softmax(dim=-1)
    chosen = [float(log_probs[t, token]) for t, token in enumerate(tokens)]
    return chosen, None if output.attention is None else output.attention[0, 0]


def every(captions):
    """All captions, alternatives too, with the numbers of their images."""
    return [
        (i, caption) for i, best in enumerate(captions) for caption in (best, *best.alternatives)
    ]


def assert_same(found, expected):
    """The same tokens; scores and maps up to rounding; the same alternatives."""
    assert [caption.tokens for caption in found] == [caption.tokens for caption in expected]
    for caption, other in zip(found, expected, strict=True):
        assert caption.score == other.score or math.isclose(
            caption.score, other.score, rel_tol=1e-11
        )
        assert (caption.attention is None) == (other.attention is None)
        if caption.attention is not None:
            close(caption.attention, other.attention, 1e-11)
        assert_same(caption.alternatives, other.alternatives)


def brute_force(model, image, max_length, following):
    """Log-probability and tokens of every caption, ended or cut, whose tokens are among those
    `following` theirs.
    """
    log_probs = model.logits[image].log_softmax(dim=-1).tolist()
    found, begun = [], [(0.0, [], BOS)]
    while begun:
        total, words, code = begun.pop()
        if len(words) == max_length or words[-1:] == [EOS]:
            found.append((total, words))
        else:
            begun += [
                (
                    total + log_probs[code][word],
                    [*words, word],
                    code * model.logits.shape[-1] + word,
                )
                for word in following(words)
            ]
    return found
