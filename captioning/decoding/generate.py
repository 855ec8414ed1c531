"""Captions word by word, each hypothesis for itself: the loop of greedy decoding and of sampling.

B images, N captions per image, V words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.decoding.caption import Caption
from captioning.decoding.filters import Filter
from captioning.decoding.log_probs import log_probs
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, EOS, PAD


@dataclass(frozen=True, slots=True)
class Generated:
    """What `follow` has found; T tokens at most."""

    tokens: Tensor  # `[B, N, T]`, PAD behind the end
    lengths: Tensor  # `[B, N]`, EOS included
    scores: Tensor  # `[B, N]`, the sum of the log-probabilities of the chosen ids, EOS included
    maps: list[tuple[Tensor, ...]]  # T times `Step.maps`


@torch.no_grad()
def follow(
    model: Captioner,
    context: ContextSet,
    n: int,
    choose: Callable[[Tensor, int], Tensor],
    max_length: int,
    forbidden: Sequence[int],
    filters: Filter | None = None,
) -> Generated:
    """N captions of each of B images; `choose` gives ids `[B, N]` from log-probabilities `[B, N, V]` at step t."""
    b, device = context.vectors.shape[0], context.vectors.device
    state = model.start(context, n)
    token = torch.full((b, n), BOS, device=device)
    ended = torch.zeros(b, n, dtype=torch.bool, device=device)
    score = torch.zeros(b, n, dtype=torch.float64, device=device)
    lengths = torch.zeros_like(token)
    tokens, maps = token.new_empty(b, n, 0), []
    for t in range(max_length):
        step = model.step(token, state)
        state = step.state
        words = log_probs(step.logits, forbidden, filters, tokens)
        token = choose(words, t)
        score += words.gather(-1, token[..., None]).squeeze(-1).masked_fill(ended, 0.0)
        lengths += ~ended
        token = token.masked_fill(ended, PAD)
        tokens = torch.cat([tokens, token[..., None]], dim=-1)
        maps.append(step.maps)
        ended |= token == EOS
        if ended.all():
            break
    return Generated(tokens, lengths, score, maps)


def generate(
    model: Captioner,
    context: ContextSet,
    n: int,
    choose: Callable[[Tensor, int], Tensor],
    max_length: int,
    forbidden: Sequence[int],
    filters: Filter | None,
) -> list[list[Caption]]:
    """As `follow`, read as captions: N for each of B images."""
    found = follow(model, context, n, choose, max_length, forbidden, filters)
    tokens, scores = found.tokens.cpu(), found.scores.tolist()
    maps = [torch.stack(each, dim=2).cpu() for each in zip(*found.maps, strict=True)]
    return [
        [
            Caption.of(tokens[i, j, :t].tolist(), scores[i][j], [each[i, j, :t] for each in maps])
            for j, t in enumerate(row)
        ]
        for i, row in enumerate(found.lengths.tolist())
    ]
