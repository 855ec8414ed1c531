"""Memory-efficient additive attention scores (Xu et al. 2015, Eq. 4).

B images, N captions per image, L context vectors, A attention features, H heads with A / H of them
each.

The scores w . tanh(P_i + Q_n) need an intermediate array `[B, N, L, A]` at every step, hundreds of
megabytes in total. Here a CPU computes it for one image at a time, which fits its cache, and again
in the backward pass, which costs less than writing and reading it. Pairs need no separate
exponential: with r = 1 / (1 + e^2P e^2Q),

    tanh(P + Q) = 1 - 2 r,  its derivative 4 r (1 - r).

With features F `[B, N, L, d]` of the pairs, w . tanh(P_i + Q_n + U F_ni), each pair needs one
exponential.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from captioning.models.parts.numerics import at_least_single


class Keys(NamedTuple):
    """Inputs of the scores of every step from the images, computed once."""

    values: Tensor  # W_a a_i + b, `[B, L, A]`
    powers: Tensor  # e^2values, in single precision at least

    @classmethod
    def of(cls, values: Tensor) -> Self:
        return cls(values, _power(values.detach()))


def additive_scores(
    keys: Keys,
    query: Tensor,
    weight: Tensor,
    pairs: Tensor | None = None,
    matrix: Tensor | None = None,
    heads: int = 1,
    relu: bool = False,
) -> Tensor:
    """Additive energies of every pair of a key and a query.

    e = w . tanh(keys + query + U pairs), `[B, N, L]`, or `[B, N, H, L]`; with `relu` ReLU in place
    of tanh, of an intermediate array `[B, N, L, A]`.

    For `query` `[B, N, A]`, `weight` w `[A]`, features `pairs` `[B, N, L, d]` and U, which is
    `matrix` `[A, d]`. Computed in at least single precision and returned in the precision of the
    keys. Keys and queries are clamped to +-40 (+-320 in double precision) so that no power
    overflows; this matters only if both are that large and of opposite signs.
    """
    if heads > 1:  # a column for each head, `[A, H]`
        weight = torch.block_diag(*weight.chunk(heads)).T
    if relu:
        with torch.autocast(query.device.type, enabled=False):
            sums = at_least_single(keys.values)[:, None] + at_least_single(query)[:, :, None]
            scores = (sums.relu() @ at_least_single(weight)).to(keys.values.dtype)
    elif torch.compiler.is_exporting():  # a graph has no tiles
        sums = keys.values[:, None] + query[:, :, None]
        if pairs is not None and matrix is not None:
            sums = sums + pairs @ matrix.T
        scores = sums.tanh() @ weight
    else:
        with torch.autocast(query.device.type, enabled=False):  # it would round what is summed
            scores = _AdditiveScores.apply(keys.values, keys.powers, query, weight, pairs, matrix)
    return scores if heads == 1 else scores.mT


def _power(x: Tensor) -> Tensor:
    """e^2x, neither zero nor infinite."""
    x = at_least_single(x)
    limit = 0.9 * math.log(torch.finfo(x.dtype).max) / 2
    return x.clamp(-limit, limit).mul_(2).exp_()


def _tiles(
    keys: Tensor, query: Tensor, pairs: Tensor | None, matrix: Tensor | None
) -> Iterator[tuple[slice, Tensor]]:
    """The sums r `[b, N, L, A]`, from the powers of keys and query.

    One image at a time on a CPU, all on a GPU or compiled.

    Each tile overwrites the previous one.
    """
    blocks = [slice(None)]
    # A compiler would unroll the loop over blocks.
    if keys.device.type == "cpu" and not torch.compiler.is_compiling():
        blocks = [slice(image, image + 1) for image in range(len(keys))]
    tile = None
    for block in blocks:
        factors = keys[block, None], query[block, :, None]
        if pairs is None or matrix is None:
            tile = torch.addcmul(query.new_ones(()), *factors, out=tile)
        else:
            tile = (
                torch.mul(*factors, out=tile)
                .mul_(_power(pairs[block].to(matrix.dtype) @ matrix.T))
                .add_(1)
            )
        yield block, tile.reciprocal_()


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, key_powers: Tensor, query: Tensor, weight: Tensor, *pair: Any
    ) -> Tensor:
        ctx.save_for_backward(key_powers, query, weight, *pair)
        ctx.dtype = keys.dtype
        wide = key_powers.dtype
        pairs, matrix = pair
        weight = weight.to(wide)
        sums = key_powers.new_empty(*query.shape[:2], keys.shape[1], *weight.shape[1:])
        for block, r in _tiles(
            key_powers, _power(query).to(wide), pairs, None if matrix is None else matrix.to(wide)
        ):
            sums[block] = (r.flatten(0, 2) @ weight).view(sums[block].shape)
        return (weight.sum(0) - 2 * sums).to(keys.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        key_powers, query, weight, pairs, matrix = ctx.saved_tensors
        powers = _power(query).to(key_powers.dtype)
        gradient = gradients[0].to(powers.dtype)
        columns = weight.to(powers.dtype)
        scale = 4 * columns if weight.ndim == 1 else 4 * torch.ones_like(columns[:, 0])
        d_keys, d_query, by_query = (torch.empty_like(x) for x in (key_powers, powers, powers))
        by_weight = torch.zeros_like(columns)
        wide = d_pairs = d_matrix = slope = None
        if pairs is not None:
            wide = matrix.to(powers.dtype)
            d_pairs, d_matrix = torch.empty_like(pairs), torch.zeros_like(wide)
        for block, r in _tiles(key_powers, powers, pairs, wide):
            if weight.ndim == 1:
                slope = torch.mul(r, gradient[block][..., None], out=slope)  # g r
                torch.sum(slope, dim=2, out=by_query[block])
            else:
                slope = torch.mul(r, gradient[block] @ columns.T, out=slope)
                by_weight += r.flatten(0, 2).T @ gradient[block].flatten(0, 2)
            slope.addcmul_(slope, r, value=-1)  # g r (1 - r)
            torch.sum(slope, dim=2, out=d_query[block])
            torch.sum(slope, dim=1, out=d_keys[block])
            if d_pairs is not None and wide is not None:
                slope.mul_(scale)
                d_pairs[block] = slope @ wide
                d_matrix += slope.flatten(0, 2).T @ pairs[block].flatten(0, 2).to(slope.dtype)
        d_keys, d_query = d_keys.mul_(scale), d_query.mul_(scale)
        if weight.ndim == 1:
            by_weight = by_query.sum((0, 1))
        d_weight = gradient.sum((0, 1, 2)) - 2 * by_weight
        d_matrix = None if d_matrix is None else d_matrix.to(matrix.dtype)
        return (
            d_keys.to(ctx.dtype),
            None,
            d_query.to(query.dtype),
            d_weight.to(weight.dtype),
            d_pairs,
            d_matrix,
        )
