"""Additive attention scores without ever holding their largest array (Xu et al. 2015, Eq. 4).

B images, N captions per image, L context vectors, A attention features.

The scores w . tanh(P_i + Q_n) pass through an array `[B, N, L, A]` at every step, hundreds of megabytes in all. Here it
exists for one image at a time on a CPU, where that stays in the cache, and is computed again in the backward pass: that
costs less than writing and reading it. On a CPU PyTorch's sigmoid is three times as fast as its tanh, hence
tanh(x) = 2 sigmoid(2 x) - 1.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def additive_scores(keys: Tensor, query: Tensor, weight: Tensor) -> Tensor:
    """e = w . tanh(keys + query) for every pair of a key and a query.

    Args:
        keys: `[B, L, A]`, W_a a_i + b.
        query: `[B, N, A]`, W_h h.
        weight: `[A]`.

    Returns:
        `[B, N, L]`.
    """
    return _AdditiveScores.apply(keys, query.to(keys.dtype), weight.to(keys.dtype))


def _blocks(keys: Tensor) -> Iterator[slice]:
    """Images to treat at once: one on a CPU, all on a GPU."""
    size = 1 if keys.device.type == "cpu" else len(keys)
    return (slice(start, start + size) for start in range(0, len(keys), size))


def _sigmoid(keys: Tensor, query: Tensor, out: Tensor | None) -> Tensor:
    """sigmoid(2 (keys + query)) of a block, `[b, N, L, A]`, written over `out` if given."""
    return torch.add(2 * query[:, :, None], keys[:, None], alpha=2, out=out).sigmoid_()


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, query: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(keys, query, weight)
        scores = keys.new_empty(*query.shape[:2], keys.shape[1])
        tile = None
        for block in _blocks(keys):
            tile = _sigmoid(keys[block], query[block], tile)
            # centred, because in half precision 2 w . sigmoid - sum(w) would be rounded like sum(w)
            scores[block] = torch.mv(tile.sub_(0.5).flatten(0, 2), 2 * weight).view(scores[block].shape)
        return scores

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys, query, weight = ctx.saved_tensors
        (gradient,) = gradients
        d_keys, d_query, d_weight = torch.empty_like(keys), torch.empty_like(query), torch.zeros_like(weight)
        tile = slope = None
        for block in _blocks(keys):
            tile = _sigmoid(keys[block], query[block], tile)
            if slope is None:
                slope = torch.empty_like(tile)
            expanded = gradient[block][..., None].expand_as(tile)
            torch.ops.aten.sigmoid_backward.grad_input(expanded, tile, grad_input=slope)
            torch.sum(slope, dim=2, out=d_query[block])
            torch.sum(slope, dim=1, out=d_keys[block])
            d_weight.addmv_(tile.sub_(0.5).flatten(0, 2).T, gradient[block].flatten())
        # the derivative of tanh at x is 4 s (1 - s) with s = sigmoid(2 x)
        return d_keys.mul_(4 * weight), d_query.mul_(4 * weight), d_weight.mul_(2)
