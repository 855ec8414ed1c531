"""How sure a captioner is: of a caption by its score, of each token by the entropy of its distribution.

A score is a log-probability per token: it ranks captions of one search, and means little by itself. Its rank among the
scores of validation captions of the same captioner and search does: the confidence. B images, T tokens, V words.
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
"""Quantiles: percentiles, with the smallest and the largest score."""
Search = Callable[[Captioner, ContextSet], list[Caption]]


def quantiles_of(scores: Iterable[float]) -> list[float]:
    """The percentiles of scores, ascending; empty if there are no scores or some are not finite."""
    values = np.array(list(scores))
    return np.quantile(values, np.linspace(0, 1, COUNT)).tolist() if values.size and np.isfinite(values).all() else []


def are_quantiles(value: Any) -> bool:
    """True if a value of a file has the form of `quantiles_of`."""
    numbers = isinstance(value, list) and all(isinstance(each, float) and math.isfinite(each) for each in value)
    return numbers and len(value) in (0, COUNT) and value == sorted(value)


def confidence(score: float, quantiles: Sequence[float]) -> float | None:
    """The share of lower scores, 0 to 1, rounded to a hundredth; None without quantiles."""
    return round(bisect_left(quantiles, score) / len(quantiles), 2) if quantiles else None


def with_entropy(search: Search) -> Search:
    """The same search, whose captions also have their `entropy`."""

    def decode(model: Captioner, context: ContextSet) -> list[Caption]:
        captions = search(model, context)
        values = entropies(model, context, [caption.tokens for caption in captions])
        return [replace(caption, entropy=row) for caption, row in zip(captions, values, strict=True)]

    return decode


@torch.no_grad()
def entropies(model: Captioner, context: ContextSet, captions: Sequence[Sequence[int]]) -> list[list[float]]:
    """The entropy in nats of the model's distribution over all V ids before each token of B captions.

    One pass of teacher forcing after any search; filters and forbidden ids belong to the search and play no part.
    """
    read = [torch.tensor([BOS, *tokens[:-1]]) for tokens in captions]
    inputs = pad_sequence(read, batch_first=True, padding_value=PAD)[:, None].to(context.vectors.device)
    logits: Tensor = model.readout(model(context, inputs).hidden)[:, 0]  # [B, T, V]
    probabilities = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(dim=-1)
    values = torch.special.entr(probabilities).sum(dim=-1).tolist()
    return [row[: len(tokens)] for row, tokens in zip(values, captions, strict=True)]
