"""Confidence of captions from their scores, and entropy of each token's distribution.

A score is a log-probability per token, which ranks captions of one search but means little in
itself. Confidence is its rank among the scores of validation captions of the same captioner and
search. B images, T tokens, V words.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from captioning.backbones.context import ContextSet
from captioning.decoding.caption import GeneratedCaption
from captioning.models.parts.numerics import at_least_single
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, PAD

COUNT = 101
"""Number of quantiles: percentiles, including the smallest and the largest score."""
MIN_SPREAD = 0.1
"""Smallest difference of the 95th and the 5th percentile, as a share of the median (D).

The bundled captioner's is 0.9; that of one with 25 steps of training was 0.004.
"""
Search = Callable[[Captioner, ContextSet], list[GeneratedCaption]]


def quantiles_of(scores: Iterable[float]) -> list[float]:
    """The percentiles of scores, ascending; empty if a rank among the scores has no meaning.

    That is without scores, with some that are not finite, and where they hardly differ: a captioner
    that has learned next to nothing gives all photographs the same score, and one that is a hair
    above would have the confidence 1.
    """
    values = np.array(list(scores))
    if not values.size or not np.isfinite(values).all():
        return []
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    if high - low < MIN_SPREAD * abs(median):
        return []
    return np.quantile(values, np.linspace(0, 1, COUNT)).tolist()


def are_quantiles(value: Any) -> bool:
    """True if a value read from a file is a valid result of `quantiles_of`."""
    numbers = isinstance(value, list) and all(
        isinstance(number, float) and math.isfinite(number) for number in value
    )
    return numbers and len(value) in (0, COUNT) and value == sorted(value)


def with_entropy(search: Search) -> Search:
    """Wrap a search so that its captions have their `entropy`.

    Entropy in nats of the model's distribution over all V ids, for each token, by one
    teacher-forcing pass after any search, without its filters and forbidden ids.
    """

    @torch.no_grad()
    def decode(model: Captioner, context: ContextSet) -> list[GeneratedCaption]:
        captions = search(model, context)
        read = [torch.tensor([BOS, *caption.tokens[:-1]]) for caption in captions]
        inputs = pad_sequence(read, batch_first=True, padding_value=PAD)[:, None].to(
            context.vectors.device
        )
        logits = model.readout(model(context, inputs).hidden)[:, 0]  # [B, T, V]
        values = torch.special.entr(at_least_single(logits).softmax(-1)).sum(-1).tolist()
        return [
            replace(caption, entropy=row[: len(caption.tokens)])
            for caption, row in zip(captions, values, strict=True)
        ]

    return decode
