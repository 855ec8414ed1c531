"""Layers of transformers (Vaswani et al. 2017; Springenberg et al. 2018, Eq. 1-4).

B images, N captions per image, T caption positions, L context vectors of D features, E = d_feat, H heads, A = E / H;
G groups that attend apart, Q queries, K keys. Masks are bool, True = may attend.
"""

import math
from itertools import repeat
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from captioning.backbones.context import ContextSet
from captioning.models.parts.numerics import dropout

Scale = Literal["sqrt_len_d", "sqrt_d"]
Norm = Literal["post", "pre"]
BLOCK = 1 << 18
"""Weights per head in memory at once during CPU training with dropout; backward recomputes each block."""


class KeyValue(NamedTuple):
    """Projected keys and values of one layer, `[..., H, K, A]` each."""

    key: Tensor
    value: Tensor


def temperature(scale: Scale, d_len: int, d_attn: int) -> float:
    """tau over `d_len` keys: sqrt(d_len + d_attn) (Eq. 2), or sqrt(d_attn) (`sqrt_d`, Vaswani et al.)."""
    return math.sqrt(d_len + d_attn if scale == "sqrt_len_d" else d_attn)


def over_image(context: ContextSet, scale: Scale, d_attn: int) -> tuple[float | Tensor, Tensor | None]:
    """tau and mask of attention over images: a float or `[B, 1, 1, 1]`, and `[B, 1, 1, L]` or None.

    d_len is the number of unmasked vectors.
    """
    if context.mask is None or scale == "sqrt_d":
        tau: float | Tensor = temperature(scale, context.vectors.shape[1], d_attn)
    else:
        tau = (context.mask.sum(dim=-1)[:, None, None, None] + d_attn).to(context.vectors.dtype).sqrt()
    return tau, None if context.mask is None else context.mask[:, None, None, :]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tau: float | Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """softmax(Q K^T / tau) V of every head (Eq. 2), concatenated (Eq. 3): `[G, H, Q, A]` to `[G, Q, H A]`.

    tau is a float or `[G, 1, 1, 1]`; the mask broadcasts to `[G, H, Q, K]` and leaves every query a key. Dropout is on
    the weights. If needed, weights before dropout are returned; without them memory grows with Q + K, not with Q K.
    """
    if isinstance(tau, Tensor):
        query, tau = query / tau, 1.0
    rows = max(1, BLOCK // key.shape[-2])
    weights = None
    if not need_weights and (dropout_p == 0.0 or query.device.type != "cpu"):  # CPU kernels do not support dropout
        found = F.scaled_dot_product_attention(query, key, value, mask, dropout_p, scale=1.0 / tau)
    elif need_weights or query.shape[-2] <= rows:
        found, weights = _explicit(query, key, value, tau, mask, dropout_p)
    else:
        masks = repeat(mask) if mask is None or mask.shape[-2] == 1 else mask.split(rows, dim=-2)
        blocks = [
            checkpoint(_explicit, block, key, value, tau, allowed, dropout_p, use_reentrant=False)[0]
            for block, allowed in zip(query.split(rows, dim=-2), masks, strict=False)
        ]
        found = torch.cat(blocks, dim=-2)
    return found.transpose(1, 2).flatten(2), weights if need_weights else None


def _explicit(
    query: Tensor, key: Tensor, value: Tensor, tau: float, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    scores = (query / tau) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    return dropout(weights, dropout_p, training=True) @ value, weights


class MultiHeadProjection(nn.Module):
    """P = `outputs` linear maps of Eq. 1 in one matrix product, without bias, split into heads."""

    def __init__(self, d_source: int, d_feat: int, heads: int, outputs: int) -> None:
        super().__init__()
        if d_feat % heads:
            raise ValueError(f"d_feat is {d_feat} and heads is {heads}; d_feat must be a multiple of heads")
        self.heads, self.outputs, self.d_attn = heads, outputs, d_feat // heads
        self.linear = nn.Linear(d_source, outputs * d_feat, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """`[G, S, d_source]` to P tensors `[G, H, S, A]`."""
        projected = self.linear(x).view(*x.shape[:2], self.outputs, self.heads, self.d_attn)
        return projected.permute(2, 0, 3, 1, 4).unbind(0)


class ResidualNorm(nn.LayerNorm):
    """LayerNorm(f(x) + x) as in both papers, or with `pre` f(LayerNorm(x)) + x (Xiong et al. 2020)."""

    def __init__(self, d_feat: int, norm: Norm) -> None:
        super().__init__(d_feat)
        self.pre = norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """Input of f."""
        return self(x) if self.pre else x

    def after(self, found: Tensor, x: Tensor) -> Tensor:
        """The sublayer's output, from f(x)."""
        return found + x if self.pre else self(found + x)


class FeedForward(nn.Module):
    """f(x) = ReLU(x W_1 + b_1) W_2 + b_2 (Eq. 4), `[..., E]` to the same."""

    def __init__(self, d_feat: int, d_hidden: int, norm: Norm) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(d_feat, d_hidden), nn.ReLU(), nn.Linear(d_hidden, d_feat))
        self.norm = ResidualNorm(d_feat, norm)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm.after(self.layers(self.norm.before(x)), x)


class SelfAttention(nn.Module):
    """f(x) = Attn(x, x, x) (Eq. 1-3)."""

    def __init__(self, d_feat: int, heads: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.project = MultiHeadProjection(d_feat, d_feat, heads, outputs=3)
        self.output = nn.Linear(d_feat, d_feat, bias=False)
        self.norm = ResidualNorm(d_feat, norm)
        self.dropout = dropout

    def forward(
        self, x: Tensor, tau: float | Tensor, mask: Tensor | None, past: KeyValue | None, need_weights: bool
    ) -> tuple[Tensor, KeyValue, Tensor | None]:
        """Attend from positions `[G, S, E]` to `past` `[G, H, t, A]` and each other; also return past and weights."""
        query, key, value = self.project(self.norm.before(x))
        if past is not None:
            key, value = torch.cat((past.key, key), dim=-2), torch.cat((past.value, value), dim=-2)
        dropout = self.dropout if self.training else 0.0
        attended, weights = attend(query, key, value, tau, mask, dropout, need_weights)
        return self.norm.after(self.output(attended), x), KeyValue(key, value), weights


class InterAttention(nn.Module):
    """f(caption) = Attn(caption, image, image).

    The residual is "+ V_input" in Eq. 3, but Q_input here, since caption and image differ in length (D).
    """

    def __init__(self, d_feat: int, d_image: int, heads: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.project_query = MultiHeadProjection(d_feat, d_feat, heads, outputs=1)
        self.project_image = MultiHeadProjection(d_image, d_feat, heads, outputs=2)
        self.output = nn.Linear(d_feat, d_feat, bias=False)
        self.norm = ResidualNorm(d_feat, norm)
        self.dropout = dropout

    def image(self, encoded: Tensor) -> KeyValue:
        """Keys and values `[B, H, L, A]` of encoded images `[B, L, D]`, once for all captions."""
        # Contiguous, because decoding multiplies by them at every step and would otherwise copy them each time.
        return KeyValue(*(projected.contiguous() for projected in self.project_image(encoded)))

    def forward(
        self, x: Tensor, image: KeyValue, tau: float | Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """`[B, S, E]`, all positions of an image's captions, to the same, and weights `[B, H, S, L]`."""
        (query,) = self.project_query(self.norm.before(x))
        dropout = self.dropout if self.training else 0.0
        attended, weights = attend(query, *image, tau, mask, dropout, need_weights)
        return self.norm.after(self.output(attended), x), weights


class EncoderLayer(nn.Module):
    """Self-attention over the context vectors, then feed-forward."""

    def __init__(self, d_feat: int, heads: int, d_hidden: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.attention = SelfAttention(d_feat, heads, dropout, norm)
        self.feed_forward = FeedForward(d_feat, d_hidden, norm)

    def forward(
        self, x: Tensor, tau: float | Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """`[B, L, E]` to the same, and weights `[B, H, L, L]`."""
        x, _, weights = self.attention(x, tau, mask, None, need_weights)
        return self.feed_forward(x), weights


class DecoderLayer(nn.Module):
    """Masked self-attention (target encoding), inter-attention (source-target mapping), feed-forward."""

    def __init__(self, d_feat: int, d_image: int, heads: int, d_hidden: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.self_attention = SelfAttention(d_feat, heads, dropout, norm)
        self.inter_attention = InterAttention(d_feat, d_image, heads, dropout, norm)
        self.feed_forward = FeedForward(d_feat, d_hidden, norm)

    def forward(
        self,
        x: Tensor,
        text_tau: float,
        text_mask: Tensor | None,
        past: KeyValue | None,
        image: KeyValue,
        image_tau: float | Tensor,
        image_mask: Tensor | None,
        need_text: bool,
        need_inter: bool,
    ) -> tuple[Tensor, KeyValue, Tensor | None, Tensor | None]:
        """`[B, N, T, E]` to the same, after `past` `[B, N, H, t, A]`; also return the longer past.

        Text weights are `[B N, H, T, t + T]`, inter-attention weights `[B, H, N T, L]`, each if needed.
        """
        b, n, t, e = x.shape
        flat = None if past is None else KeyValue(*(kept.flatten(0, 1) for kept in past))
        x, longer, text = self.self_attention(x.view(b * n, t, e), text_tau, text_mask, flat, need_text)
        x, inter = self.inter_attention(x.view(b, n * t, e), image, image_tau, image_mask, need_inter)
        longer = KeyValue(*(kept.unflatten(0, (b, n)) for kept in longer))
        return self.feed_forward(x).view(b, n, t, e), longer, text, inter
