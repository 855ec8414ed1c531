"""Greedy decoding and sampling: captions word by word, each hypothesis independent of the others.

B images, N captions per image, V words, L context vectors of D features, T tokens so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.decoding.caption import GeneratedCaption
from captioning.decoding.filters import AnyFilter
from captioning.decoding.steps import all_ended, log_probs, to_captions
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, EOS, PAD

BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def sampler(
    context: ContextSet,
    n: int,
    temperature: float,
    top_k: int | None,
    top_p: float,
    seed: int,
    max_length: int,
) -> Callable[[Tensor, int], Tensor]:
    """The choice of ids for `generate` by numbers that depend on the seed and the image alone."""
    keys = context_hash(context)
    draws = uniform(splitmix64(keys, torch.full_like(keys, seed)), n, max_length)

    def choose(words: Tensor, t: int) -> Tensor:
        return draw_ids(words / temperature, draws[..., t], top_k, top_p)

    return choose


def draw_ids(
    scores: Tensor, uniform: Tensor, top_k: int | None = None, top_p: float = 1.0
) -> Tensor:
    """Draw ids `[...]` from unnormalised log-probabilities `[..., V]`.

    By `uniform` `[...]` in [0, 1).

    The id is where the sum of the probabilities, in descending order, first exceeds `uniform`.
    """
    size = scores.shape[-1] if top_k is None else min(top_k, scores.shape[-1])
    scores, ids = scores.double().topk(size, dim=-1)
    sums = scores.softmax(-1).cumsum(-1)
    # The first id whose sum reaches top_p is the last of the nucleus; rounding errors above it are
    # never drawn.
    last = (sums < top_p * sums[..., -1:]).sum(-1, keepdim=True).clamp(max=size - 1)
    height = uniform[..., None].double() * sums.gather(-1, last)
    rank = torch.minimum(torch.searchsorted(sums, height, right=True), last)
    return ids.gather(-1, rank).squeeze(-1)


def draw_any(scores: Tensor, uniform: Tensor) -> Tensor:
    """Like `draw` from all ids, but summed in the order of ids, which avoids a slow sort."""
    sums = scores.double().softmax(-1).cumsum(-1)
    height = uniform[..., None].double() * sums[..., -1:]
    return torch.searchsorted(sums, height, right=True).squeeze(-1)


def uniform(keys: Tensor, *sizes: int) -> Tensor:
    """Counter-based random numbers `[*keys, *sizes]` in [0, 1).

    They are multiples of 2^-24; `keys` is int64 of any shape.

    The number at `(b, i, j, ...)` is a hash of `(keys[b], i, j, ...)` alone (Salmon et al.,
    "Parallel random numbers: as easy as 1, 2, 3", 2011), by integer arithmetic, so that neither
    device, batch nor order of images changes it.
    """
    for size in sizes:
        keys = splitmix64(keys[..., None], torch.arange(size, device=keys.device))
    return _shifted(keys, 64 - 24).float() / 2**24


def splitmix64(keys: Tensor, n: Tensor) -> Tensor:
    """New keys: output n = 0, 1, ... of a generator seeded by each key.

    It is SplitMix64 (Steele, Lea, Flood 2014).

    The outputs seed further generators, one level for each part of a key.
    """
    # Arithmetic of int64 is modulo 2^64; constants from 2^63 on are written as negative numbers.
    z = keys + (n + 1) * (0x9E3779B97F4A7C15 - 2**64)
    z = (z ^ _shifted(z, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ _shifted(z, 27)) * (0x94D049BB133111EB - 2**64)
    return z ^ _shifted(z, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    # unsigned shift; torch's shift repeats the sign
    return (x >> bits) & (2 ** (64 - bits) - 1)


def context_hash(context: ContextSet) -> Tensor:
    """Hash of each image's context vectors, `[B]` int64, independent of the batch."""
    vectors = context.vectors.contiguous()
    bits = vectors.view(BITS[vectors.element_size()]).long()
    if context.mask is not None:
        bits = bits * context.mask[..., None]
    bits = bits.flatten(1)
    multipliers = splitmix64(
        torch.zeros_like(bits[0]), torch.arange(bits.shape[1], device=bits.device)
    )
    return (bits * (multipliers | 1)).sum(1)


@dataclass(frozen=True)
class GeneratedBatch:
    """The captions of `generate`, at most T tokens long."""

    tokens: Tensor  # `[B, N, T]`, PAD after the end
    lengths: Tensor  # `[B, N]`, EOS included
    scores: Tensor  # `[B, N]`, the sum of the log-probabilities of the chosen ids, EOS included
    maps: list[tuple[Tensor, ...]]  # T times `Step.maps`

    def captions(self) -> list[list[GeneratedCaption]]:
        maps = [torch.stack(steps, dim=2) for steps in zip(*self.maps, strict=True)]
        return to_captions(self.tokens, self.lengths, self.scores, maps)


@torch.no_grad()
def generate(
    model: Captioner,
    context: ContextSet,
    n: int,
    choose: Callable[[Tensor, int], Tensor],
    max_length: int,
    forbidden: Sequence[int],
    filters: AnyFilter | None = None,
) -> GeneratedBatch:
    """Decode N captions per image.

    `choose` gives ids `[B, N]` from log-probabilities `[B, N, V]` and step t.
    """
    state = model.start(context, n)
    token = torch.full((len(context.vectors), n), BOS, device=context.vectors.device)
    ended = torch.zeros_like(token, dtype=torch.bool)
    score = torch.zeros_like(token, dtype=torch.float64)
    lengths = torch.zeros_like(token)
    tokens, maps = token.new_empty(*token.shape, 0), []
    for t in range(max_length):
        step = model.step(token, state)
        state = step.state
        words = log_probs(step.logits, forbidden, filters, tokens, max_length - t)
        token = choose(words, t)
        score += words.gather(-1, token[..., None]).squeeze(-1).masked_fill(ended, 0.0)
        lengths += ~ended
        token = token.masked_fill(ended, PAD)
        tokens = torch.cat([tokens, token[..., None]], dim=-1)
        maps.append(step.maps)
        ended |= token == EOS
        if all_ended(ended, t + 1):
            break
    return GeneratedBatch(tokens, lengths, score, maps)
