"""Scaled dot-product attention of many heads (Vaswani et al. 2017, section 3.2; Springenberg et al. 2018, Eq. 1-3).

G groups that attend apart, Q queries, K keys, H heads, A features per head, E features in all (E = H A).
"""

import math
from itertools import repeat
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from captioning.backbones.context import ContextSet
from captioning.models.parts.dropout import dropout

Scale = Literal["sqrt_len_d", "sqrt_d"]
BLOCK = 1 << 18
"""Weights of a head that lie in memory at once while a CPU trains with dropout; backward computes each block anew."""


def temperature(scale: Scale, d_len: int, d_attn: int) -> float:
    """The divisor tau of the scores over `d_len` keys.

    It is sqrt(d_len + d_attn) of Eq. 2 with `sqrt_len_d`, or with `sqrt_d` sqrt(d_attn) of Vaswani et al. 2017.
    """
    return math.sqrt(d_len + d_attn if scale == "sqrt_len_d" else d_attn)


def over_image(context: ContextSet, scale: Scale, d_attn: int) -> tuple[float | Tensor, Tensor | None]:
    """tau of attention over images, one number or `[B, 1, 1, 1]`, and what may be attended, `[B, 1, 1, L]` or None.

    d_len is the number of vectors that may be.
    """
    if context.mask is None or scale == "sqrt_d":
        tau: float | Tensor = temperature(scale, context.vectors.shape[1], d_attn)
    else:
        tau = (context.mask.sum(dim=-1)[:, None, None, None] + d_attn).to(context.vectors.dtype).sqrt()
    return tau, None if context.mask is None else context.mask[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """`[length, length]` bool, True = may attend: query t sees keys 0..t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tau: float | Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q K^T / tau) V for every head (Eq. 2).

    Args:
        query: `[G, H, Q, A]`.
        key: `[G, H, K, A]`.
        value: `[G, H, K, A]`.
        tau: divisor of the scores, one number or `[G, 1, 1, 1]`.
        mask: bool, True = may attend, broadcast to `[G, H, Q, K]`; every query must have at least one key.
        dropout_p: probability of dropping an attention weight (after the softmax).
        need_weights: return the weights before dropout too; otherwise memory grows with Q + K, not with Q K.

    Returns:
        `[G, H, Q, A]`, and the weights `[G, H, Q, K]` or None.
    """
    if isinstance(tau, Tensor):
        query, tau = query / tau, 1.0
    if need_weights:
        return _explicit(query, key, value, tau, mask, dropout_p)
    if dropout_p == 0.0 or query.device.type != "cpu":  # the kernels of a CPU know no dropout
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout_p, scale=1.0 / tau
        ), None
    rows = max(1, BLOCK // key.shape[-2])
    if query.shape[-2] <= rows:
        return _explicit(query, key, value, tau, mask, dropout_p)[0], None
    some = repeat(mask) if mask is None or mask.shape[-2] == 1 else mask.split(rows, dim=-2)
    blocks = [
        checkpoint(_explicit, part, key, value, tau, allowed, dropout_p, use_reentrant=False)[0]
        for part, allowed in zip(query.split(rows, dim=-2), some, strict=False)
    ]
    return torch.cat(blocks, dim=-2), None


def _explicit(
    query: Tensor, key: Tensor, value: Tensor, tau: float, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    scores = (query / tau) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    return dropout(weights, dropout_p, training=True) @ value, weights


class MultiHeadProjection(nn.Module):
    """Linear maps without bias that are split into heads: P = `outputs` of Eq. 1 in one matrix product.

    Self-attention projects x to (Q, K, V); inter-attention projects the caption to (Q,) and the image to (K, V).
    """

    def __init__(self, d_source: int, d_feat: int, heads: int, outputs: int) -> None:
        super().__init__()
        self.heads, self.outputs, self.d_attn = heads, outputs, d_feat // heads
        self.linear = nn.Linear(d_source, outputs * d_feat, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """`[G, S, d_source]` to P tensors `[G, H, S, A]`."""
        projected = self.linear(x).view(*x.shape[:2], self.outputs, self.heads, self.d_attn)
        return projected.permute(2, 0, 3, 1, 4).unbind(0)


def merge_heads(x: Tensor) -> Tensor:
    """The concatenation of Eq. 3: `[G, H, S, A]` to `[G, S, E]`."""
    return x.transpose(1, 2).flatten(2)
