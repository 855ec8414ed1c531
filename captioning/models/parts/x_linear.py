"""X-linear attention (Pan, Yao, Li, Mei, CVPR 2020).

Products of query and image weigh places and channels.

B images, N captions per image, L context vectors of D features, queries of n features, E =
d_attention in H heads of A = E / H features.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Count, Share, Width, validated
from captioning.models.parts.attention import Annotations, Attention, AttentionStep
from captioning.models.parts.numerics import dropout
from captioning.models.parts.scores import Score


class Embedding(nn.Module):
    """f(W x + b): CELU of 1.3 and a normalisation of each head's features, of one vector alone."""

    def __init__(self, d_source: int, d_attention: int, heads: int):
        super().__init__()
        self.linear = nn.Linear(d_source, d_attention)
        self.norm = nn.GroupNorm(heads, d_attention)

    def forward(self, x: Tensor) -> Tensor:
        """`[..., d_source]` to `[..., E]`."""
        vectors = nn.functional.celu(self.linear(x), 1.3)
        return self.norm(vectors.flatten(0, -2)).view(vectors.shape)


class XLinear(Attention):
    """z_t = LayerNorm(W [h; gamma * V1 * sum_i beta_i V2_i] + b), without a score of its own kind.

    With Q = f(W_q h), V1 = f(W_1 h), K_i = f(W_k c_i), V2_i = f(W_2 c_i) and B_i = ReLU(W_b (Q *
    K_i)) of each head, beta = softmax_i(w . B_i) and gamma = sigmoid(W_e mean_i B_i). alpha is the
    mean of beta over heads.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        d_query: int,
        grid: Grid,
        score: Callable[..., Score] | None = None,
        *,
        d_attention: Width | None = None,
        heads: Count = 8,
        dropout: Share = 0.1,
    ):
        super().__init__()
        self.d_value = width = d_attention or d_query
        if width % heads:
            raise ValueError(
                f"d_attention is {width} and heads is {heads}; it must be a multiple of heads"
            )
        half = max(1, width // heads // 2)
        self.heads, self.dropout = heads, dropout
        self.query, self.gain = (Embedding(d_query, width, heads) for _ in range(2))  # W_q, W_1
        self.key, self.value = (Embedding(d_context, width, heads) for _ in range(2))  # W_k, W_2
        self.hidden = nn.Linear(width // heads, half)  # W_b
        self.place = nn.Linear(half, 1, bias=False)  # w; a bias would cancel in the softmax
        self.channel = nn.Linear(half, width // heads)  # W_e
        self.output = nn.Linear(d_query + width, width)
        self.norm = nn.LayerNorm(width)

    def read(self, context: ContextSet) -> Annotations:
        """The values V2_i and the keys K_i, `[B, H, L, A]`."""
        keys, values = (
            part(context.vectors).unflatten(-1, (self.heads, -1)).transpose(1, 2).contiguous()
            for part in (self.key, self.value)
        )
        mask = None if context.mask is None else context.mask[:, None, None]
        return Annotations(values, keys, mask, context.grid)

    def forward(self, image: Annotations, query: Tensor, *_: Any, **__: Any) -> AttentionStep:
        # Both are [B, N, H, A].
        asked, gain = (
            part(query).unflatten(-1, (self.heads, -1)) for part in (self.query, self.gain)
        )
        # [B, N, H, L, A / 2]
        hidden = self.hidden(asked[..., None, :] * image.keys[:, None]).relu()
        hidden = dropout(hidden, self.dropout, self.training)
        scores = self.place(hidden).squeeze(-1)
        if image.mask is None:
            pooled = hidden.mean(-2)
        else:
            scores = scores.masked_fill(~image.mask, float("-inf"))
            real = image.mask[..., None].to(hidden.dtype)
            pooled = (hidden * real).sum(-2) / real.sum(-2)
        beta = scores.softmax(-1)
        seen = (beta.transpose(1, 2).to(image.values.dtype) @ image.values).transpose(1, 2)
        attended = (self.channel(pooled).sigmoid() * gain * seen).flatten(2)
        return AttentionStep(
            self.norm(self.output(torch.cat((query, attended), dim=-1))), beta.mean(2)
        )
