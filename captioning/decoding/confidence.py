"""Confidence of captions from their scores, and entropy of each token's distribution.

A score is a log-probability per token, which ranks captions of one search but means little in itself. Confidence is its
rank among the scores of validation captions of the same captioner and search. B images, T tokens, V words.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.backbones.context import ContextSet
from captioning.decoding.caption import Caption
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, PAD

COUNT = 101
"""Number of quantiles: percentiles, including the smallest and the largest score."""
Search = Callable[[Captioner, ContextSet], list[Caption]]


def quantiles_of(scores: Iterable[float]) -> list[float]:
    """The percentiles of scores, ascending; empty without scores or if some are not finite."""
    values = np.array(list(scores))
    return np.quantile(values, np.linspace(0, 1, COUNT)).tolist() if values.size and np.isfinite(values).all() else []


def are_quantiles(value: Any) -> bool:
    """True if a value read from a file is a valid result of `quantiles_of`."""
    numbers = isinstance(value, list) and all(isinstance(each, float) and math.isfinite(each) for each in value)
    return numbers and len(value) in (0, COUNT) and value == sorted(value)


def confidence(score: float, quantiles: Sequence[float]) -> float | None:
    """Share of lower validation scores, 0 to 1, rounded to 0.01; None without quantiles."""
    return round(bisect_left(quantiles, score) / len(quantiles), 2) if quantiles else None


def with_entropy(search: Search) -> Search:
    """Wrap a search so that its captions have their `entropy`.

    Entropy in nats of the model's distribution over all V ids, for each token, by one teacher-forcing pass after any
    search, without its filters and forbidden ids.
    """

    @torch.no_grad()
    def decode(model: Captioner, context: ContextSet) -> list[Caption]:
        captions = search(model, context)
        read = [torch.tensor([BOS, *caption.tokens[:-1]]) for caption in captions]
        inputs = pad_sequence(read, batch_first=True, padding_value=PAD)[:, None].to(context.vectors.device)
        logits: Tensor = model.readout(model(context, inputs).hidden)[:, 0]  # [B, T, V]
        probabilities = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(dim=-1)
        values = torch.special.entr(probabilities).sum(dim=-1).tolist()
        return [replace(each, entropy=row[: len(each.tokens)]) for each, row in zip(captions, values, strict=True)]

    return decode
