"""Captioners with a transformer decoder (not the spatial transformer that warps images).

Vaswani et al., "Attention Is All You Need", 2017; Springenberg, Lakomkin, Weber, Wermter:
"Image-to-Text Transduction with Spatial Self-Attention", ESANN 2018, to which equation numbers
refer.

B images, N captions per image, C input positions, L context vectors of D features, E = d_model, H
heads, A = d_attn = E / H, V words. The image's places are K context vectors, or P prefix places.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Count, Length, Share, Width, validated
from captioning.models.parallel import DecoderOutput, ParallelCaptioner
from captioning.models.parts.encoders import Encoder, Unchanged
from captioning.models.parts.layers import DecoderLayer, LayerOutput, Norm, final_norm
from captioning.models.parts.multi_head import (
    KeyValue,
    LayersState,
    Scale,
    image_mask_and_scale,
    temperature,
)
from captioning.models.parts.numerics import dropout, glorot, initialise
from captioning.models.parts.positions import Positions, sinusoidal
from captioning.models.parts.prefix import PrefixLayer


class EncodedImage(NamedTuple):
    """Inputs of the decoder layers from the images, computed once for all captions."""

    # `[B, H, K, A]`, one pair per decoder layer; meshed, the heads of all levels
    layers: tuple[KeyValue, ...]
    scale: float | Tensor  # divisor of the scores over the image, one number or `[B, 1, 1, 1]`
    mask: Tensor | None  # `[B, 1, 1, K]` bool


class Transformer(ParallelCaptioner):
    """Self-attention over the caption and inter-attention over the image, after an optional
    encoder.

    Without an encoder the features are used unchanged, without positions. `max_tokens` is the
    largest number of input tokens, including BOS, and d_len of Eq. 2 for text (D): a constant, so
    that parallel, step-by-step and padded evaluation agree. Dropout is on the embeddings of the
    caption and on the attention weights. `norm` is the position of layer normalisation in each
    sublayer, `post` as in the papers; `pre` and `pre_deviation` add a final one. `biases` are those
    of queries, keys, values and outputs of attention.

    `conditioning` is where the image enters: by inter-attention (`cross`), to all levels of the
    encoder (`meshed`, Cornia et al. 2020), or before the words (`prefix`), whose places attend to
    each other, or to those before (`causal_prefix`). A prefix and the words share a softmax, with
    d_len = P + max_tokens (D). `uniform` is `cross` with equal weights on all places, a control
    (D): tau is infinite.
    """

    @validated
    def __init__(
        self,
        vocab_size: int,
        d_context: int,
        grid: Grid,
        *,
        encoder: Callable[..., Encoder] | None = None,
        max_tokens: Length = 15,
        d_model: Width = 512,
        heads: Count = 8,
        d_ff: Width = 1024,
        decoder_layers: Count = 4,
        dropout: Share = 0.1,
        scale: Scale = "sqrt_len_d",
        norm: Norm = "post",
        text_positions: Literal["sinusoidal", "learned"] = "sinusoidal",
        conditioning: Literal["cross", "uniform", "meshed", "prefix", "causal_prefix"] = "cross",
        biases: bool = False,
    ):
        super().__init__()
        self.max_tokens, self.dropout = max_tokens, dropout
        self.d_model, self.d_attn, self.scale = d_model, d_model // heads, scale
        self.prefix, self.causal = conditioning.endswith("prefix"), conditioning == "causal_prefix"
        self.uniform = conditioning == "uniform"
        self.text_scale = temperature(scale, max_tokens, self.d_attn)

        self.embed = nn.Embedding(vocab_size, d_model)
        self.encoder = (encoder or Unchanged)(d_context=d_context, grid=grid)
        self.attends = self.encoder.located
        self.shares_attention = self.prefix or self.encoder.memory > 0
        d_image = self.encoder.d_out
        if self.prefix and d_image != d_model:
            raise ValueError(
                f"a prefix of {d_image} features cannot precede words of {d_model}; make them equal"
            )
        levels = self.encoder.depth if conditioning == "meshed" else 0
        self.heads = heads * (levels or 1)  # maps of a layer
        stack = (
            PrefixLayer(d_model, heads, d_ff, dropout, norm, biases=biases)
            if self.prefix
            else DecoderLayer(d_model, d_image, heads, d_ff, dropout, norm, levels, biases)
            for _ in range(decoder_layers)
        )
        self.decoder = cast(Sequence[DecoderLayer | PrefixLayer], nn.ModuleList(stack))
        self.norm = final_norm(d_model, norm)
        self.output = nn.Linear(d_model, vocab_size)  # not tied to the embedding (D)
        self.positions = Positions(sinusoidal(max_tokens, d_model), text_positions == "learned")

        # (D) Glorot for every matrix as in Vaswani et al.'s code; embeddings have variance 1/E, so
        # that after the factor sqrt(E) they are as large as the positional encoding.
        glorot(self)
        nn.init.normal_(self.embed.weight, std=d_model**-0.5)
        initialise(self.positions, self.encoder)

    def readout(self, hidden: Tensor) -> Tensor:
        return self.output(hidden)

    def start(self, context: ContextSet, n: int) -> LayersState:
        levels, _ = self.encoder.forward_with_weights(context, need_weights=False)
        scale, mask = image_mask_and_scale(
            levels[-1], self.scale, self.d_attn, self.max_tokens if self.prefix else 0
        )
        if self.uniform:
            scale = math.inf
        own = mask
        if self.causal:
            before = _lower_triangle(levels[-1].vectors.shape[1], context.vectors.device)
            # a masked place sees itself, or it would see nothing
            own = before if mask is None else (before & mask) | before.triu()
        layers = []
        vectors: Sequence[Tensor] = [level.vectors for level in levels]
        for layer in self.decoder:
            keys, vectors = layer.image(vectors, scale, own)
            layers.append(keys)
        return LayersState(EncodedImage(tuple(layers), scale, mask))

    @torch.no_grad()
    def attention_shares(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        shares = self.encoder.attention_shares(context, tokens)
        if self.prefix:
            passed = self.read(self.start(context, 1), tokens, len(self.decoder))
            image = [alpha.sum(-1).mean(1) for alpha in passed.inter]  # [B, N T]
            shares["image"] = torch.stack(image).mean(0).unflatten(1, tokens.shape[1:])
        return shares

    def heads_of(self, weights: Tensor, tokens: Tensor) -> Tensor:
        if self.prefix:
            weights = weights / weights.sum(-1, keepdim=True).clamp(
                min=torch.finfo(weights.dtype).tiny
            )
        return weights.transpose(1, 2).unflatten(1, tokens.shape[1:])

    def read(self, state: LayersState, tokens: Tensor, maps: int) -> DecoderOutput:
        """Process tokens `[B, N, T]`, T = 1 if others precede."""
        first = state.text[0].key.shape[-2] if state.text else 0
        length = tokens.shape[-1]
        if first + length > self.max_tokens:
            raise ValueError(
                f"{first + length} input tokens (including BOS) exceed "
                f"max_tokens={self.max_tokens}, which determines "
                "the text temperature (Eq. 2). Decode fewer words, or train with larger max_tokens."
            )
        # (D) embeddings times sqrt(d_model) as in Vaswani et al., section 3.4
        x = self.positions(self.embed(tokens) * math.sqrt(self.d_model), first)
        x = dropout(x, self.dropout, self.training)
        causal = _lower_triangle(length, x.device) if length > 1 else None
        image, pasts = state.image, state.text or repeat(None)
        without = len(self.decoder) - maps  # layers whose weights are not needed
        outputs = list[LayerOutput]()
        for layer, past, image_keys in zip(self.decoder, pasts, image.layers, strict=False):
            out = layer(
                x,
                past=past,
                text_scale=self.text_scale,
                text_mask=causal,
                image=image_keys,
                image_scale=image.scale,
                image_mask=image.mask,
                need_inter=len(outputs) >= without,
            )
            outputs.append(out)
            x = out.hidden
        return DecoderOutput(
            self.norm(x),
            replace(state, text=tuple(out.keys for out in outputs)),
            [out.inter for out in outputs if out.inter is not None],
        )


def _lower_triangle(size: int, device: torch.device) -> Tensor:
    """`[size, size]` bool: each position and those before."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()
