"""Additive attention scores without ever holding their largest array (Xu et al. 2015, Eq. 4).

B images, N captions per image, L context vectors, A attention features.

The scores w . tanh(P_i + Q_n) pass through an array `[B, N, L, A]` at every step, hundreds of megabytes in all. Here it
exists for one image at a time on a CPU, where that stays in the cache, and is computed again in the backward pass: that
costs less than writing and reading it. And no pair needs an exponential of its own: with r = 1 / (1 + e^2P e^2Q),

    tanh(P + Q) = 1 - 2 r,  its derivative 4 r (1 - r).

Features F `[B, N, L, d]` of the pairs themselves may join, w . tanh(P_i + Q_n + U F_ni), at an exponential per pair.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Keys:
    """What the scores of every step read of the images, computed once.

    Attributes:
        values: W_a a_i + b, `[B, L, A]`.
        powers: e^2values, in single precision at least.
    """

    values: Tensor
    powers: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Keys of `values` `[B, L, A]`."""
        return cls(values, _power(values.detach()))


def additive_scores(
    keys: Keys, query: Tensor, weight: Tensor, pairs: Tensor | None = None, matrix: Tensor | None = None
) -> Tensor:
    """e = w . tanh(keys + query + U pairs) for every pair of a key and a query.

    Computed in single precision at least. A key or query beyond +-40 (+-320 in double precision) counts as that, so
    that no power overflows; its tanh is +-1 either way unless both are so large and of opposite signs.

    Args:
        keys: of B images, L each.
        query: `[B, N, A]`, W_h h.
        weight: `[A]`.
        pairs: features of the pairs, `[B, N, L, d]`, or None.
        matrix: U, `[A, d]`, with `pairs`.

    Returns:
        `[B, N, L]`, of the type of the keys' values.
    """
    return _AdditiveScores.apply(keys.values, keys.powers, query, weight, pairs, matrix)


def _blocks(keys: Tensor) -> Iterator[slice]:
    """Images to treat at once: one on a CPU, all on a GPU."""
    size = 1 if keys.device.type == "cpu" else len(keys)
    return (slice(start, start + size) for start in range(0, len(keys), size))


def _power(x: Tensor) -> Tensor:
    """e^2x, neither zero nor infinite."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    limit = 0.9 * math.log(torch.finfo(x.dtype).max) / 2
    return x.clamp(-limit, limit).mul_(2).exp_()


def _r(keys: Tensor, query: Tensor, pairs: Tensor | None, matrix: Tensor | None, out: Tensor | None) -> Tensor:
    """r of a block of images, `[b, N, L, A]`, from the powers of keys and query; written over `out` if given."""
    if pairs is None or matrix is None:
        return torch.addcmul(query.new_ones(()), keys[:, None], query[:, :, None], out=out).reciprocal_()
    out = torch.mul(keys[:, None], query[:, :, None], out=out)
    return out.mul_(_power(pairs.to(matrix.dtype) @ matrix.T)).add_(1).reciprocal_()


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        keys: Tensor,
        key_powers: Tensor,
        query: Tensor,
        weight: Tensor,
        pairs: Tensor | None,
        matrix: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(key_powers, query, weight, pairs, matrix)
        ctx.dtype = keys.dtype
        powers = _power(query).to(key_powers.dtype)
        weight = weight.to(powers.dtype)
        wide = matrix if matrix is None else matrix.to(powers.dtype)
        sums = powers.new_empty(*query.shape[:2], keys.shape[1])
        tile = None
        for block in _blocks(key_powers):
            tile = _r(key_powers[block], powers[block], None if pairs is None else pairs[block], wide, tile)
            sums[block] = torch.mv(tile.flatten(0, 2), weight).view(sums[block].shape)
        return (weight.sum() - 2 * sums).to(keys.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        key_powers, query, weight, pairs, matrix = ctx.saved_tensors
        powers = _power(query).to(key_powers.dtype)
        gradient = gradients[0].to(powers.dtype)
        scale = 4 * weight.to(powers.dtype)
        d_keys, d_query, by_weight = (torch.empty_like(x) for x in (key_powers, powers, powers))
        wide = d_pairs = d_matrix = None
        if pairs is not None:
            wide = matrix.to(powers.dtype)
            d_pairs, d_matrix = torch.empty_like(pairs), torch.zeros_like(wide)
        tile = slope = None
        for block in _blocks(key_powers):
            tile = _r(key_powers[block], powers[block], None if pairs is None else pairs[block], wide, tile)
            slope = torch.mul(tile, gradient[block][..., None], out=slope)  # g r
            torch.sum(slope, dim=2, out=by_weight[block])
            slope.addcmul_(slope, tile, value=-1)  # g r (1 - r)
            torch.sum(slope, dim=2, out=d_query[block])
            torch.sum(slope, dim=1, out=d_keys[block])
            if d_pairs is not None and wide is not None:
                slope.mul_(scale)
                d_pairs[block] = slope @ wide
                d_matrix += slope.flatten(0, 2).T @ pairs[block].flatten(0, 2).to(slope.dtype)
        d_keys, d_query = d_keys.mul_(scale), d_query.mul_(scale)
        d_weight = gradient.sum() - 2 * by_weight.sum(dim=(0, 1))
        d_matrix = None if d_matrix is None else d_matrix.to(matrix.dtype)
        return d_keys.to(ctx.dtype), None, d_query.to(query.dtype), d_weight.to(weight.dtype), d_pairs, d_matrix
