"""Additive scores as one kernel each way, a candidate for a GPU (Xu et al. 2015, Eq. 4).

B images, N captions per image, L context vectors, A attention features. The sums `[B, N, L, A]` of
keys and queries stay in registers; a step of the code as it is writes and reads them some nine
times. `TRITON_INTERPRET=1` runs the kernels on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOCATIONS, FEATURES = 16, 64  # of a tile


@triton.jit
def _tanh(x: Any) -> Any:
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _forward(
    keys: Any,
    query: Any,
    weight: Any,
    scores: Any,
    n_captions: Any,
    n_locations: Any,
    n_features: Any,
    locations: tl.constexpr,
    features: tl.constexpr,
) -> None:
    """A caption and some locations of an image: e = sum over features of w tanh(k + q)."""
    image, caption = tl.program_id(0), tl.program_id(1)
    rows = tl.program_id(2) * locations + tl.arange(0, locations)
    real = rows < n_locations
    total = tl.zeros([locations], dtype=tl.float32)
    for first in range(0, n_features, features):
        columns = first + tl.arange(0, features)
        there = columns < n_features
        places = (image * n_locations + rows)[:, None] * n_features + columns[None, :]
        k = tl.load(keys + places, mask=real[:, None] & there[None, :], other=0.0)
        caption_row = (image * n_captions + caption) * n_features
        q = tl.load(query + caption_row + columns, mask=there, other=0.0)
        w = tl.load(weight + columns, mask=there, other=0.0)
        t = _tanh(k.to(tl.float32) + q.to(tl.float32)[None, :])
        total += tl.sum(t * w.to(tl.float32)[None, :], axis=1)
    at = (image * n_captions + caption) * n_locations + rows
    tl.store(scores + at, total, mask=real)


@triton.jit
def _backward(
    keys: Any,
    query: Any,
    weight: Any,
    gradient: Any,
    d_keys: Any,
    d_query: Any,
    d_weight: Any,
    n_captions: Any,
    n_locations: Any,
    n_features: Any,
    captions: tl.constexpr,
    locations: tl.constexpr,
    features: tl.constexpr,
) -> None:
    """Some features of an image: with s = g w (1 - tanh^2), sums over captions and locations."""
    image = tl.program_id(0)
    columns = tl.program_id(1) * features + tl.arange(0, features)
    there = columns < n_features
    w = tl.load(weight + columns, mask=there, other=0.0).to(tl.float32)
    number = tl.arange(0, captions)
    by_query = tl.zeros([captions, features], dtype=tl.float32)
    by_weight = tl.zeros([features], dtype=tl.float32)
    for first in range(0, n_locations, locations):
        rows = first + tl.arange(0, locations)
        real = rows < n_locations
        places = (image * n_locations + rows)[:, None] * n_features + columns[None, :]
        inside = real[:, None] & there[None, :]
        k = tl.load(keys + places, mask=inside, other=0.0).to(tl.float32)
        by_key = tl.zeros([locations, features], dtype=tl.float32)
        for caption in range(0, n_captions):
            row = image * n_captions + caption
            q = tl.load(query + row * n_features + columns, mask=there, other=0.0)
            g = tl.load(gradient + row * n_locations + rows, mask=real, other=0.0)
            g = g.to(tl.float32)[:, None]
            t = _tanh(k + q.to(tl.float32)[None, :])
            slope = g * (1 - t * t) * w[None, :]
            by_key += slope
            by_weight += tl.sum(g * t, axis=0)
            own = (number == caption)[:, None]
            by_query += tl.where(own, tl.sum(slope, axis=0)[None, :], 0.0)
        tl.store(d_keys + places, by_key, mask=inside)
    rows = (image * n_captions + number)[:, None] * n_features + columns[None, :]
    tl.store(d_query + rows, by_query, mask=(number < n_captions)[:, None] & there[None, :])
    tl.store(d_weight + image * n_features + columns, by_weight, mask=there)


class FusedScores(torch.autograd.Function):
    """`captioning.models.parts.additive` for one head and no features of pairs."""

    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, powers: Tensor, query: Tensor, weight: Tensor, *pair: Any
    ) -> Tensor:
        keys, query, weight = (x.contiguous() for x in (keys, query, weight))
        ctx.save_for_backward(keys, query, weight)
        (b, n, a), locations = query.shape, keys.shape[1]
        scores = query.new_empty(b, n, locations, dtype=torch.float32)
        grid = (b, n, triton.cdiv(locations, LOCATIONS))
        _forward[grid](keys, query, weight, scores, n, locations, a, LOCATIONS, FEATURES)
        return scores.to(keys.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        keys, query, weight = ctx.saved_tensors
        (b, n, a), locations = query.shape, keys.shape[1]
        d_keys, d_query = (torch.empty_like(x, dtype=torch.float32) for x in (keys, query))
        d_weight = query.new_empty(b, a, dtype=torch.float32)
        grid = (b, triton.cdiv(a, FEATURES))
        _backward[grid](
            keys,
            query,
            weight,
            gradients[0].contiguous(),
            d_keys,
            d_query,
            d_weight,
            n,
            locations,
            a,
            triton.next_power_of_2(n),
            LOCATIONS,
            FEATURES,
        )
        d_weight = d_weight.sum(0).to(weight.dtype)
        return d_keys.to(keys.dtype), None, d_query.to(query.dtype), d_weight, None, None
