"""What the steps of all searches share: log-probabilities under filters, and their captions.

B images, N hypotheses per image, V words, L context vectors, T tokens.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from captioning.decoding.caption import GeneratedCaption
from captioning.decoding.filters import AnyFilter, Filter
from captioning.models.parts.numerics import at_least_single
from captioning.tokens import EOS

EVERY = {"cpu": 1, "others": 4}
"""Steps between two questions whether all captions have ended, by device; further steps change
none.
"""


def to_captions(
    tokens: Tensor, lengths: Tensor, scores: Tensor, maps: Sequence[Tensor]
) -> list[list[GeneratedCaption]]:
    """Captions of each image from `tokens` `[B, N, T]`.

    `lengths` and `scores` are `[B, N]`, maps `[B, N, T, L]`.
    """
    maps = [alpha.cpu() for alpha in maps]
    columns = tokens.tolist(), lengths.tolist(), scores.tolist()
    return [
        [
            GeneratedCaption.of(row[:length], score, [alpha[i, j, :length] for alpha in maps])
            for j, (row, length, score) in enumerate(zip(*image, strict=True))
        ]
        for i, image in enumerate(zip(*columns, strict=True))
    ]


def all_ended(ended: Tensor, step: int) -> bool:
    """Return True if every caption has ended.

    A GPU is asked only at some steps, since asking waits for it.
    """
    every = EVERY.get(ended.device.type, EVERY["others"])
    return step % every == 0 and bool(ended.all())


def log_probs(
    logits: Tensor,
    forbidden: Sequence[int],
    filters: AnyFilter | None = None,
    history: Tensor | None = None,
    left: float = math.inf,
) -> Tensor:
    """Log-softmax of logits `[B, N, V]` in at least single precision.

    Minus infinity at forbidden ids.

    `filters` depend on `history` `[B, N, T]`, the ids generated so far, and on the number of tokens
    `left` until the caption is cut, this one included. A hypothesis without allowed words may end.
    """
    result = at_least_single(logits).log_softmax(-1)
    # Not renormalised, so that the score of a caption is the model's log-probability.
    eos = result[..., EOS].clone()
    result.index_fill_(-1, on_device(forbidden, result.device), float("-inf"))
    if filters is not None:
        assert history is not None
        if not isinstance(filters, Filter):
            result = filters(result, history)
        elif not filters.idle:
            hypotheses = history.flatten(0, 1).tolist()
            allowed = torch.from_numpy(filters.allowed(hypotheses, result.shape[-1], left))
            forbidden_here = ~allowed.to(result.device, non_blocking=True).view_as(result)
            result = result.masked_fill(forbidden_here, -torch.inf)
        nothing = (result == float("-inf")).all(-1)
        result[..., EOS] = eos.where(nothing, result[..., EOS])
    return result


def mask_tokens(log_probs: Tensor, ids: Sequence[int]) -> Tensor:
    """Forbid some ids."""
    return log_probs.index_fill(-1, on_device(ids, log_probs.device), -torch.inf)


def on_device(ids: Sequence[int], device: torch.device) -> Tensor:
    """Ids as a tensor; the copy does not wait for the device, as indexing by a list would."""
    return torch.tensor(ids, dtype=torch.long).to(device, non_blocking=True)
