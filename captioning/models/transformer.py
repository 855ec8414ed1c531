"""Captioners whose decoder is a transformer (not the spatial transformer that warps images).

Vaswani et al., "Attention Is All You Need", 2017; Springenberg, Lakomkin, Weber, Wermter: "Image-to-Text Transduction
with Spatial Self-Attention", ESANN 2018, whose numbers of equations are given.

B images, N captions per image, C input positions, L context vectors of D features, E = d_feat, H heads,
A = d_attn = E / H, V words.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Count, Length, Share, Width, validated
from captioning.models.parts.encoders import Encoder
from captioning.models.parts.layers import DecoderLayer, KeyValue, Norm, Scale, causal_mask, over_image, temperature
from captioning.models.parts.numerics import dropout, glorot
from captioning.models.parts.positions import Positions, TextPositions, sinusoidal
from captioning.models.protocol import CaptionOutput, LayerWeights, Step


class EncodedImage(NamedTuple):
    """Inputs of the decoder layers from an image, computed once for all of its captions."""

    layers: tuple[KeyValue, ...]  # `[B, H, L, A]`, one pair per decoder layer
    tau: float | Tensor  # divisor of the scores over the image, one number or `[B, 1, 1, 1]`
    mask: Tensor | None  # `[B, 1, 1, L]` bool


@dataclass(frozen=True, slots=True)
class TransformerState:
    """Decode state: the image once, the keys and values `[B, N, H, t, A]` of each hypothesis' words so far."""

    image: EncodedImage
    text: tuple[KeyValue, ...] = ()

    def reorder(self, parents: Tensor) -> Self:
        """See `DecodeState.reorder`."""
        rows = torch.arange(parents.shape[0], device=parents.device)[:, None]
        return replace(self, text=tuple(KeyValue(*(kept[rows, parents] for kept in layer)) for layer in self.text))


class Transformer(nn.Module):
    """A decoder of self-attention over the caption and inter-attention over the image, after an optional encoder.

    Args:
        vocab_size: V.
        d_context: D of the backbone.
        grid: (h, w) of the backbone, L = h w.
        encoder: from context set to context set; None leaves the features as they are, without positions.
        max_tokens: the largest number of input tokens, BOS included. It is d_len of Eq. 2 for text (D): a
            constant, so that parallel, step-by-step and padded evaluation agree.
        d_feat: E.
        heads: H, a divisor of d_feat.
        d_hidden: width of the feed-forward operation.
        decoder_layers: layers of the decoder.
        dropout: on the embeddings of the caption and on the attention weights.
        scale: `sqrt_len_d` is tau = sqrt(d_len + d_attn) of Eq. 2; `sqrt_d` is that of Vaswani et al.
        norm: of each sublayer, `post` as in the papers; `pre` has another at the end.
        text_positions: sinusoids, or a table that is learned.
    """

    attends, stochastic = True, False
    parallel = True

    @validated
    def __init__(
        self,
        vocab_size: int,
        d_context: int,
        grid: Grid,
        *,
        encoder: Callable[..., Encoder] | None = None,
        max_tokens: Length = 15,
        d_feat: Width = 512,
        heads: Count = 8,
        d_hidden: Width = 1024,
        decoder_layers: Count = 4,
        dropout: Share = 0.1,
        scale: Scale = "sqrt_len_d",
        norm: Norm = "post",
        text_positions: TextPositions = "sinusoidal",
    ) -> None:
        super().__init__()
        if d_feat % heads:
            raise ValueError(f"d_feat is {d_feat} and heads is {heads}; d_feat must be a multiple of heads")
        self.max_tokens = max_tokens
        self.d_feat, self.heads = d_feat, heads
        self.d_attn = d_feat // heads
        self.dropout = dropout
        self.scale: Scale = scale
        self.text_tau = temperature(scale, max_tokens, self.d_attn)

        self.embed = nn.Embedding(vocab_size, d_feat)
        self.encoder = encoder(d_context=d_context, grid=grid) if encoder else None
        d_image = self.encoder.d_out if self.encoder else d_context
        stack = (DecoderLayer(d_feat, d_image, heads, d_hidden, dropout, norm) for _ in range(decoder_layers))
        self.decoder = cast(Sequence[DecoderLayer], nn.ModuleList(stack))
        self.norm = nn.LayerNorm(d_feat) if norm == "pre" else nn.Identity()
        self.output = nn.Linear(d_feat, vocab_size)
        self.positions = Positions(sinusoidal(max_tokens, d_feat), text_positions == "learned")

        # (D) Glorot for every matrix as in Vaswani et al.'s code; embeddings have variance 1/E, so that after the
        # factor sqrt(E) they are of the size of the positional encoding.
        glorot(self)
        nn.init.normal_(self.embed.weight, std=d_feat**-0.5)
        self.positions.initialise()
        if self.encoder:
            self.encoder.initialise()

    def encode(self, context: ContextSet) -> EncodedImage:
        """The image as the encoder gives it, as keys and values of every decoder layer."""
        return self._projected(self.encoder(context) if self.encoder else context)

    def _projected(self, context: ContextSet) -> EncodedImage:
        layers = tuple(layer.inter_attention.image(context.vectors) for layer in self.decoder)
        return EncodedImage(layers, *over_image(context, self.scale, self.d_attn))

    def forward(self, context: ContextSet, tokens: Tensor, need_weights: bool = False) -> CaptionOutput:
        """Teacher forcing.

        Args:
            context: the images.
            tokens: `[B, N, C]` inputs that begin with BOS; PAD may follow the last word.
            need_weights: also give the inter-attention of the last layer, heads averaged.
        """
        wanted = self.decoder[-1:] if need_weights else ()
        hidden, _, maps = self._read(self.start(context, tokens.shape[1]), tokens, wanted)
        return CaptionOutput(hidden, self._shares(maps[0].mean(dim=-2)) if maps else None)

    def readout(self, hidden: Tensor) -> Tensor:
        """Logits `[..., V]`; the weights are not tied to the embedding (D)."""
        return self.output(hidden)

    def start(self, context: ContextSet, n: int) -> TransformerState:
        """Encodes each image once, for any number of hypotheses of it."""
        return TransformerState(self.encode(context))

    def step(self, tokens: Tensor, state: TransformerState) -> Step:
        """Read one token `[B, N]` of each hypothesis."""
        # Of one position the weights cost no time, and they are only B N H L numbers.
        hidden, state, maps = self._read(state, tokens[..., None], self.decoder)
        return Step(self.readout(hidden[:, :, 0]), self._shares(maps[-1][:, :, 0].mean(dim=-2)), state)

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """`inter`: `[B, N, C, M, L]`, the inter-attention of every head; M = layers x heads, layer by layer."""
        maps = self._read(self.start(context, 1), tokens, self.decoder)[2]
        return {"inter": torch.cat([self._shares(each) for each in maps], dim=-2)}

    def layer_weights(self, context: ContextSet, tokens: Tensor) -> LayerWeights:
        """See `LayeredCaptioner`; all weights have gradients where gradients are on."""
        image, encoder = self.encoder.attending(context) if self.encoder else (context, [])
        seen: list[Tensor] = []
        state = TransformerState(self._projected(image))
        hidden = self._read(state, tokens[:, None], self.decoder, seen)[0]
        return LayerWeights(self.readout(hidden[:, 0]), encoder, seen[::2], seen[1::2], self._shares)

    def _shares(self, alpha: Tensor) -> Tensor:
        return self.encoder.shares(alpha) if self.encoder else alpha

    def _read(
        self,
        state: TransformerState,
        tokens: Tensor,
        wanted: Collection[nn.Module],
        seen: list[Tensor] | None = None,
    ) -> tuple[Tensor, TransformerState, list[Tensor]]:
        """Tokens `[B, N, T]`, one alone after others: input of `readout`, state after, wanted layers' weights.

        `seen` gets what `DecoderLayer` gives it.
        """
        first = state.text[0].key.shape[-2] if state.text else 0
        length = tokens.shape[-1]
        if first + length > self.max_tokens:
            raise ValueError(
                f"{first + length} input tokens (BOS included) exceed max_tokens={self.max_tokens}, by which the text "
                "temperature (Eq. 2) is fixed. Decode fewer words or train with a larger one."
            )
        # (D) embeddings times sqrt(d_feat) as in Vaswani et al., section 3.4
        x = self.positions(self.embed(tokens) * math.sqrt(self.d_feat), first)
        x = dropout(x, self.dropout, self.training)
        if seen is not None:
            x.requires_grad_()  # so that the weights of a frozen model have gradients
        mask = causal_mask(length, tokens.device) if length > 1 else None
        text, maps = [], []
        for layer, past, image in zip(self.decoder, state.text or repeat(None), state.image.layers, strict=False):
            x, longer, weights = layer(
                x, self.text_tau, mask, past, image, state.image.tau, state.image.mask, layer in wanted, seen
            )
            text.append(longer)
            if weights is not None:
                maps.append(weights)
        return self.norm(x), replace(state, text=tuple(text)), maps
