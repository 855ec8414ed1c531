"""Layers of transformers (Vaswani et al. 2017; Springenberg et al. 2018, Eq. 1-4).

B images, N captions per image, T caption positions, L context vectors of D features, E = d_model, H
heads, A = E / H; G groups that attend apart. Masks are as in `multi_head`. With `biases`, the maps
of queries, keys, values and outputs have biases, which Eq. 1-3 lack.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from captioning.models.parts.multi_head import KeyValue, Memory, MultiHeadProjection, attend
from captioning.models.parts.norms import LayerNorm
from captioning.models.parts.numerics import dropout

Norm = Literal["post", "pre", "pre_deviation"]


class ReadImage(NamedTuple):
    """What a layer of the decoder makes of the encoded images, once for all captions."""

    keys: KeyValue  # for `forward`
    levels: Sequence[Tensor]  # the image for the next layer


class Attended(NamedTuple):
    """Result of self-attention, or of a layer of it."""

    hidden: Tensor
    keys: KeyValue  # of all positions so far
    weights: Tensor | None  # if needed


class LayerOutput(NamedTuple):
    """Result of a layer of the decoder."""

    hidden: Tensor  # `[B, N, T, E]`
    keys: KeyValue  # of the words so far, `[B, N, H, t + T, A]`
    text: Tensor | None  # weights `[B N, H, T, t + T]`, where they were computed
    inter: Tensor | None  # weights over the image `[B, H, N T, L]`, if needed


class ResidualNorm(LayerNorm):
    """LayerNorm(f(x) + x) as in both papers; with `pre` f(LayerNorm(x)) + x (Xiong et al. 2020).

    `pre_deviation` divides by the standard deviation of a sample, see `LayerNorm`.
    """

    def __init__(self, d_model: int, norm: Norm):
        super().__init__(d_model, norm == "pre_deviation")
        self.pre = norm != "post"

    def before(self, x: Tensor) -> Tensor:
        """Input of f."""
        return self(x) if self.pre else x

    def after(self, update: Tensor, x: Tensor) -> Tensor:
        """The sublayer's output, from f(x)."""
        return update + x if self.pre else self(update + x)


def final_norm(d_model: int, norm: Norm) -> nn.Module:
    """The normalisation after the last layer, unless each has its own there."""
    return nn.Identity() if norm == "post" else LayerNorm(d_model, norm == "pre_deviation")


class FeedForward(nn.Module):
    """f(x) = ReLU(x W_1 + b_1) W_2 + b_2 (Eq. 4), `[..., E]` to the same."""

    def __init__(self, d_model: int, d_ff: int, norm: Norm):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm = ResidualNorm(d_model, norm)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm.after(self.layers(self.norm.before(x)), x)


class AttentionOnAttention(nn.Module):
    """Attention on attention: i * sigmoid(g) in place of W_O.

    [i; g] = W [attended; x] + b, x the query (Huang et al. 2019, Eq. 2-6).
    """

    def __init__(self, d_model: int, dropout: float):
        super().__init__()
        self.linear = nn.Linear(2 * d_model, 2 * d_model)
        self.dropout = dropout

    def forward(self, attended: Tensor, x: Tensor) -> Tensor:
        joined = dropout(torch.cat((attended, x), dim=-1), self.dropout, self.training)
        return nn.functional.glu(self.linear(joined))


class SelfAttention(nn.Module):
    """Self-attention f(x) = Attn(x, x, x) (Eq. 1-3), with `memory` slots, or with attention on
    attention in place of W_O (`gated`).
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        dropout: float,
        norm: Norm,
        memory: int = 0,
        gated: bool = False,
        biases: bool = False,
    ):
        super().__init__()
        self.project = MultiHeadProjection(d_model, d_model, heads, 3, biases)
        self.memory = Memory(memory, d_model, heads) if memory else None
        self.gated = gated
        self.output = (
            AttentionOnAttention(d_model, dropout)
            if gated
            else nn.Linear(d_model, d_model, bias=biases)
        )
        self.norm = ResidualNorm(d_model, norm)
        self.dropout = dropout

    def forward(
        self,
        x: Tensor,
        scale: float | Tensor,
        mask: Tensor | None,
        past: KeyValue | None,
        need_weights: bool,
    ) -> Attended:
        """Attend from positions `[G, S, E]` to `past` `[G, H, t, A]` and each other."""
        own = self.norm.before(x)
        query, *pair = self.project(own)
        keys = KeyValue(*pair).after(past)
        key, value = keys
        if self.memory:
            key, value, mask = self.memory(key, value, mask)
        p = self.dropout if self.training else 0.0
        attended, weights = attend(query, key, value, scale, mask, p, need_weights)
        attended = self.output(attended, own) if self.gated else self.output(attended)
        return Attended(self.norm.after(attended, x), keys, weights)


class InterAttention(nn.Module):
    """f(caption) = Attn(caption, image, image); with `levels`, of that many levels of the encoder.

    The residual is "+ V_input" in Eq. 3, but Q_input here, since caption and image differ in length
    (D). Meshed, of N levels, it is gated (Cornia et al. 2020, section 3.2): M = sum_i a_i * C_i /
    sqrt(N), a_i = sigmoid(W_i [x; C_i] + b_i), with C_i = LayerNorm(Attn(x, level i) + x) as in the
    authors' code, where the paper adds and normalises once (D). All levels share the attention:
    they are its heads.
    """

    def __init__(
        self,
        d_model: int,
        d_image: int,
        heads: int,
        dropout: float,
        norm: Norm,
        levels: int = 0,
        biases: bool = False,
    ):
        super().__init__()
        self.project_query = MultiHeadProjection(d_model, d_model, heads, 1, biases)
        self.project_image = MultiHeadProjection(d_image, d_model, heads, 2, biases)
        self.output = nn.Linear(d_model, d_model, bias=biases)
        self.norm = ResidualNorm(d_model, norm)
        self.dropout = dropout
        self.gates = nn.ModuleList(nn.Linear(2 * d_model, d_model) for _ in range(levels))

    def image(self, levels: Sequence[Tensor]) -> KeyValue:
        """Keys and values `[B, H, L, A]` of encoded images, once for all captions.

        Images are the last of `[B, L, D]`; meshed, keys are `[B, N H, L, A]`.
        """
        # Contiguous, because decoding multiplies by them at every step and would otherwise copy
        # them each time.
        pairs = map(self.project_image, levels if self.gates else levels[-1:])
        return KeyValue(*(torch.cat(x, dim=1).contiguous() for x in zip(*pairs, strict=True)))

    def forward(
        self,
        x: Tensor,
        image: KeyValue,
        scale: float | Tensor,
        mask: Tensor | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Decode all positions of an image's captions, `[B, S, E]`, to the same, with weights `[B,
        H, S, L]`; meshed `[B, N H, S, L]`.
        """
        (query,) = self.project_query(self.norm.before(x))
        n = len(self.gates)
        if n:
            query = query.repeat(1, n, 1, 1)
        p = self.dropout if self.training else 0.0
        attended, weights = attend(query, *image, scale, mask, p, need_weights)
        if not n:
            return self.norm.after(self.output(attended), x), weights
        outputs = self.output(attended.unflatten(-1, (n, -1)))
        levels = self.norm.after(outputs, x[:, :, None]).unbind(2)
        gated = [
            gate(torch.cat((x, level), dim=-1)).sigmoid() * level
            for gate, level in zip(self.gates, levels, strict=True)
        ]
        return torch.stack(gated).sum(0) / math.sqrt(n), weights


class EncoderLayer(nn.Module):
    """Self-attention over the context vectors, then feed-forward, unless d_ff is 0."""

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        dropout: float,
        norm: Norm,
        memory: int = 0,
        gated: bool = False,
        biases: bool = False,
    ):
        super().__init__()
        self.attention = SelfAttention(d_model, heads, dropout, norm, memory, gated, biases)
        self.feed_forward = FeedForward(d_model, d_ff, norm) if d_ff else nn.Identity()

    def forward(
        self, x: Tensor, scale: float | Tensor, mask: Tensor | None, need_weights: bool
    ) -> Attended:
        """`[B, L, E]` to the same, with keys, and weights `[B, H, L, L + M]`."""
        attended = self.attention(x, scale, mask, None, need_weights)
        return attended._replace(hidden=self.feed_forward(attended.hidden))


class DecoderLayer(nn.Module):
    """Masked self-attention, inter-attention, feed-forward.

    The paper's target encoding and source-target mapping.

    With `levels`, inter-attention is meshed.
    """

    def __init__(
        self,
        d_model: int,
        d_image: int,
        heads: int,
        d_ff: int,
        dropout: float,
        norm: Norm,
        levels: int,
        biases: bool,
    ):
        super().__init__()
        self.self_attention = SelfAttention(d_model, heads, dropout, norm, biases=biases)
        self.inter_attention = InterAttention(
            d_model, d_image, heads, dropout, norm, levels, biases
        )
        self.feed_forward = FeedForward(d_model, d_ff, norm)

    def image(
        self, levels: Sequence[Tensor], scale: float | Tensor, mask: Tensor | None
    ) -> ReadImage:
        return ReadImage(self.inter_attention.image(levels), levels)

    def forward(
        self,
        x: Tensor,
        *,
        past: KeyValue | None,
        text_scale: float,
        text_mask: Tensor | None,
        image: KeyValue,
        image_scale: float | Tensor,
        image_mask: Tensor | None,
        need_inter: bool,
    ) -> LayerOutput:
        """Read words `[B, N, T, E]` after `past` `[B, N, H, t, A]`."""
        b, n, t, e = x.shape
        flat = None if past is None else KeyValue(*(kept.flatten(0, 1) for kept in past))
        text = self.self_attention(x.view(b * n, t, e), text_scale, text_mask, flat, False)
        x, inter = self.inter_attention(
            text.hidden.view(b, n * t, e), image, image_scale, image_mask, need_inter
        )
        keys = KeyValue(*(kept.unflatten(0, (b, n)) for kept in text.keys))
        return LayerOutput(self.feed_forward(x).view(b, n, t, e), keys, text.weights, inter)
