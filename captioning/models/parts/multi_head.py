"""Attention of several heads (Vaswani et al. 2017, section 3.2; Springenberg et al. 2018, Eq. 1-3).

B images, L context vectors, E = d_model, H heads, A = E / H; G groups that attend apart, Q queries,
K keys, M memory slots. Masks are bool, True = may attend, or floats that are added to the scores.
"""

import math
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from captioning.backbones.context import ContextSet
from captioning.models.parts.numerics import Part, dropout, index_select_hypotheses

Scale = Literal["sqrt_len_d", "sqrt_d"]
BLOCK = 1 << 18
"""Weights per head in memory at once during CPU training with dropout; backward recomputes each
block.
"""


class KeyValue(NamedTuple):
    """Projected keys and values of one layer, `[..., H, K, A]` each."""

    key: Tensor
    value: Tensor

    def after(self, past: "KeyValue | None") -> "KeyValue":
        """These after the keys and values of earlier positions."""
        if past is None:
            return self
        return KeyValue(*(torch.cat(both, dim=-2) for both in zip(past, self, strict=True)))


@dataclass(frozen=True)
class LayersState:
    """Decode state: the images once, and keys and values `[B, N, H, t, A]` of the words so far."""

    image: Any  # the model's own
    text: tuple[KeyValue, ...] = ()

    def reorder(self, parents: Tensor) -> Self:
        layers = (KeyValue(*index_select_hypotheses(layer, parents)) for layer in self.text)
        return replace(self, text=tuple(layers))


def temperature(kind: Scale, d_len: int, d_attn: int) -> float:
    """The temperature tau over `d_len` keys: sqrt(d_len + d_attn) (Eq. 2), or sqrt(d_attn)
    (`sqrt_d`, Vaswani et al.).
    """
    return math.sqrt(d_len + d_attn if kind == "sqrt_len_d" else d_attn)


def image_mask_and_scale(
    context: ContextSet, kind: Scale, d_attn: int, words: int = 0
) -> tuple[float | Tensor, Tensor | None]:
    """tau and mask of attention over images: a float or `[B, 1, 1, 1]`, and `[B, 1, 1, L]` or None.

    d_len is the number of unmasked vectors, and of `words` that share the softmax with them.
    """
    if context.mask is None or kind == "sqrt_d":
        scale: float | Tensor = temperature(kind, context.vectors.shape[1] + words, d_attn)
    else:
        scale = (
            (context.mask.sum(-1)[:, None, None, None] + words + d_attn)
            .to(context.vectors.dtype)
            .sqrt()
        )
    return scale, None if context.mask is None else context.mask[:, None, None, :]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attend: softmax(Q K^T / tau) V of every head (Eq. 2), concatenated (Eq. 3).

    `[G, H, Q, A]` to `[G, Q, H A]`.

    tau is a float or `[G, 1, 1, 1]`; the mask broadcasts to `[G, H, Q, K]` and leaves every query a
    key. Dropout is on the weights. If needed, weights before dropout are returned; without them
    memory grows with Q + K, not with Q K.
    """
    if isinstance(scale, Tensor):
        query, scale = query / scale, 1.0
    rows = max(1, BLOCK // key.shape[-2])
    weights = None
    # CPU kernels do not support dropout.
    if not need_weights and (dropout_p == 0.0 or query.device.type != "cpu"):
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, mask, dropout_p, scale=1.0 / scale
        )
    elif need_weights or query.shape[-2] <= rows:
        attended, weights = _explicit(query, key, value, scale, mask, dropout_p)
    else:
        masks = repeat(mask) if mask is None or mask.shape[-2] == 1 else mask.split(rows, dim=-2)
        blocks = [
            checkpoint(
                _explicit, block, key, value, scale, allowed, dropout_p, use_reentrant=False
            )[0]
            for block, allowed in zip(query.split(rows, dim=-2), masks, strict=False)
        ]
        attended = torch.cat(blocks, dim=-2)
    return attended.transpose(1, 2).flatten(2), weights if need_weights else None


def _explicit(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    scores = (query / scale) @ key.transpose(-1, -2)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        )
    weights = scores.softmax(-1)
    return dropout(weights, dropout_p, training=True) @ value, weights


class MultiHeadProjection(nn.Module):
    """P = `outputs` linear maps of Eq. 1 in one matrix product, split into heads."""

    def __init__(self, d_source: int, d_model: int, heads: int, outputs: int, biases: bool):
        super().__init__()
        if d_model % heads:
            raise ValueError(
                f"d_model is {d_model} and heads is {heads}; d_model must be a multiple of heads"
            )
        self.heads, self.outputs, self.d_attn = heads, outputs, d_model // heads
        self.linear = nn.Linear(d_source, outputs * d_model, bias=biases)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """`[G, S, d_source]` to P tensors `[G, H, S, A]`."""
        projected = self.linear(x).view(*x.shape[:2], self.outputs, self.heads, self.d_attn)
        # in this order, the gradients are stacked in the layout of the product
        return tuple(each.transpose(1, 2) for each in projected.unbind(2))


class Memory(Part):
    """M more keys sqrt(A) M_k and values sqrt(M) M_v, learned (Cornia et al. 2020, section 3.1)."""

    def __init__(self, slots: int, d_model: int, heads: int):
        super().__init__()
        self.key = nn.Parameter(torch.empty(heads, slots, d_model // heads))
        self.value = nn.Parameter(torch.empty(heads, slots, d_model // heads))

    def initialise(self) -> None:
        _, slots, d_attn = self.key.shape
        nn.init.normal_(self.key, std=1 / d_attn)
        nn.init.normal_(self.value, std=1 / slots)

    def forward(
        self, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the slots, which no mask hides, to `[G, H, S, A]`."""
        _, slots, d_attn = self.key.shape
        more = math.sqrt(d_attn) * self.key, math.sqrt(slots) * self.value
        key, value = (
            torch.cat((x, own.to(x.dtype).expand(x.shape[0], -1, -1, -1)), dim=-2)
            for x, own in zip((key, value), more, strict=True)
        )
        if mask is not None:
            mask = nn.functional.pad(mask, (0, slots), value=mask.dtype == torch.bool)
        return key, value, mask
