"""Captions drawn from the model's distribution.

B images, N samples per image, V words, L context vectors of D features, T tokens so far.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from annotated_types import Ge, Interval
from pydantic import SkipValidation
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.config.types import Length, Positive, Samples, validated
from captioning.decoding.caption import FORBIDDEN, Caption, best_first
from captioning.decoding.filters import Filter
from captioning.decoding.generate import generate
from captioning.decoding.keyed_random import derived, uniform
from captioning.models.protocol import Captioner

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@validated
@torch.no_grad()
def sample(
    model: SkipValidation[Captioner],
    context: SkipValidation[ContextSet],
    n: Samples = 1,
    temperature: Positive = 1.0,
    top_k: Annotated[int, Ge(1)] | None = None,
    top_p: Annotated[float, Interval(gt=0, le=1)] = 1.0,
    seed: Annotated[int, Interval(ge=0, lt=2**63)] = 0,
    max_length: Length = 15,
    *,
    forbidden: Sequence[int] = FORBIDDEN,
    filters: Filter | None = None,
) -> list[Caption]:
    """Draws every word from the model's distribution, made narrower in the order of the arguments.

    The draws are a function of the seed, the image's context vectors, the sample and the step: the order of images, and
    what else is in the batch, do not change an answer, and equal images have equal samples.

    Args:
        model: anything with `start` and `step`; what belongs to an image is computed once for its samples.
        context: B images.
        n: N independent samples per image.
        temperature: divides the log-probabilities.
        top_k: only the k likeliest words may be drawn (Fan et al., "Hierarchical Neural Story Generation", 2018); None
            allows all.
        top_p: only the likeliest words that together have at least this probability may be drawn, the nucleus
            (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020).
        seed: of the draws.
        max_length: the largest number of generated tokens, EOS included.
        forbidden: token ids that are never generated.
        filters: what may come next, given what came before (`captioning.decoding.filters`).

    Returns:
        B captions: of the N samples the likeliest, the others as its alternatives. The score is the model's own
        log-probability, as for `greedy`.

    Raises:
        ValueError: a number that is not allowed.
    """
    keys = image_keys(context)
    draws = uniform(derived(keys, torch.full_like(keys, seed)), n, max_length)

    def choose(words: Tensor, t: int) -> Tensor:
        return draw(words / temperature, draws[..., t], top_k, top_p)

    return [best_first(found) for found in generate(model, context, n, choose, max_length, forbidden, filters)]


def draw(scores: Tensor, uniform: Tensor, top_k: int | None = None, top_p: float = 1.0) -> Tensor:
    """One id for each row of unnormalised log-probabilities.

    Args:
        scores: `[..., V]`, minus infinity at what is never drawn.
        uniform: `[...]` in [0, 1).
        top_k: of the likeliest ids so many.
        top_p: of these the likeliest that together have at least this share.

    Returns:
        `[...]` int64: where the sum of the probabilities, the largest first, first exceeds `uniform`.
    """
    size = scores.shape[-1] if top_k is None else min(top_k, scores.shape[-1])
    scores, ids = scores.double().topk(size, dim=-1)
    sums = scores.softmax(dim=-1).cumsum(dim=-1)
    # the first id whose sum reaches top_p is the last of the nucleus, and whatever rounding leaves above is not drawn
    last = (sums < top_p * sums[..., -1:]).sum(dim=-1, keepdim=True).clamp(max=size - 1)
    height = uniform[..., None].double() * sums.gather(-1, last)
    place = torch.minimum(torch.searchsorted(sums, height, right=True), last)
    return ids.gather(-1, place).squeeze(-1)


def draw_any(scores: Tensor, uniform: Tensor) -> Tensor:
    """As `draw` from all ids, in their own order: nothing is sorted, which takes longer than all else.

    Returns:
        `[...]` int64: where the sum of the probabilities, the lowest id first, first exceeds `uniform`.
    """
    sums = scores.double().softmax(dim=-1).cumsum(dim=-1)
    height = uniform[..., None].double() * sums[..., -1:]
    return torch.searchsorted(sums, height, right=True).squeeze(-1)


def image_keys(context: ContextSet) -> Tensor:
    """A number for each image, `[B]` int64, from the bits of its context vectors: the same in every batch."""
    vectors = context.vectors.contiguous()
    bits = vectors.view(_BITS[vectors.element_size()]).long()
    if context.mask is not None:
        bits = bits * context.mask[..., None]
    bits = bits.flatten(1)
    places = derived(torch.zeros_like(bits[0]), torch.arange(bits.shape[1], device=bits.device))
    return (bits * (places | 1)).sum(dim=1)
