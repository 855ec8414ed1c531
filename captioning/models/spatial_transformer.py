"""The spatial transformer captioner (not the affine-warp network of the same name).

Springenberg, Lakomkin, Weber, Wermter: "Image-to-Text Transduction with Spatial Self-Attention", ESANN 2018.

B images, N captions per image, C input positions, L context vectors of D features, E = d_feat, H heads,
A = d_attn = E / H, V words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self, cast

import torch
from annotated_types import Interval
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.borders.bounds import Count, Length, Share, Width
from captioning.models.attention import Scale, causal_mask, temperature
from captioning.models.dropout import dropout
from captioning.models.outputs import CaptionOutput, Step
from captioning.models.positions import sinusoidal, sinusoidal_2d
from captioning.models.transformer import DecoderLayer, EncoderLayer, KeyValue


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """What the decoder layers read of an image, computed once for all of its captions.

    Attributes:
        layers: keys and values `[B, H, L, A]`, one pair per decoder layer.
        tau: divisor of the scores over the image, one number or `[B, 1, 1, 1]`.
        mask: `[B, 1, 1, L]` bool or None.
    """

    layers: tuple[KeyValue, ...]
    tau: float | Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class TransformerState:
    """Decode state: the image once, the keys and values `[B, N, H, t, A]` of each hypothesis' words so far."""

    image: EncodedImage
    hypotheses: int
    text: tuple[KeyValue, ...] | None

    def reorder(self, parents: Tensor) -> Self:
        """See `DecodeState.reorder`."""
        assert self.text is not None
        rows = torch.arange(parents.shape[0], device=parents.device)[:, None]
        text = tuple(KeyValue(layer.key[rows, parents], layer.value[rows, parents]) for layer in self.text)
        return replace(self, hypotheses=parents.shape[1], text=text)


class SpatialTransformer(nn.Module):
    """Encoder of self-attention over the image, decoder of self- and inter-attention over the caption.

    Args:
        vocab_size: V.
        d_context: D of the backbone; a linear projection to d_feat is learnt only where they differ.
        grid: (h, w) of the backbone, L = h w.
        max_tokens: the largest number of input tokens, BOS included. It is d_len of Eq. 2 for text (D): a
            constant, so that parallel, step-by-step and padded evaluation agree.
        d_feat: E.
        heads: H, a divisor of d_feat.
        d_hidden: width of the feed-forward operation.
        encoder_layers: layers of the encoder.
        decoder_layers: layers of the decoder.
        dropout: at exactly three places: caption embeddings, image features, attention weights.
        scale: `sqrt_len_d` is tau = sqrt(d_len + d_attn) of Eq. 2; `sqrt_d` is that of Vaswani et al.
        image_positions: `1d` encodes the L positions in row order, `2d` rows and columns apart.
    """

    image_positions: Tensor
    text_positions: Tensor

    def __init__(
        self,
        vocab_size: int,
        d_context: int,
        grid: tuple[int, int],
        max_tokens: Length = 15,
        d_feat: Width = 512,
        heads: Count = 8,
        d_hidden: Width = 1024,
        encoder_layers: Annotated[int, Interval(ge=0, le=1000)] = 2,
        decoder_layers: Count = 4,
        dropout: Share = 0.1,
        scale: Scale = "sqrt_len_d",
        image_positions: Literal["1d", "2d"] = "1d",
    ) -> None:
        super().__init__()
        if d_feat % heads:
            raise ValueError(f"d_feat is {d_feat} and heads is {heads}; d_feat must be a multiple of heads")
        if decoder_layers < 1:
            raise ValueError(f"decoder_layers is {decoder_layers}; at least 1 is needed")
        if image_positions not in ("1d", "2d"):
            raise ValueError(f"image_positions is {image_positions!r}; allowed: 1d, 2d")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; it is a probability, 0 <= dropout < 1")
        self.max_tokens = max_tokens
        self.d_feat = d_feat
        self.d_attn = d_feat // heads
        self.dropout = dropout
        self.scale: Scale = scale
        self.text_tau = temperature(scale, max_tokens, self.d_attn)

        self.embed = nn.Embedding(vocab_size, d_feat)
        self.project = nn.Linear(d_context, d_feat) if d_context != d_feat else nn.Identity()
        encoder = (EncoderLayer(d_feat, heads, d_hidden, dropout) for _ in range(encoder_layers))
        decoder = (DecoderLayer(d_feat, heads, d_hidden, dropout) for _ in range(decoder_layers))
        self.encoder = cast(Sequence[EncoderLayer], nn.ModuleList(encoder))
        self.decoder = cast(Sequence[DecoderLayer], nn.ModuleList(decoder))
        self.output = nn.Linear(d_feat, vocab_size)

        length = grid[0] * grid[1]
        image_table = sinusoidal(length, d_feat) if image_positions == "1d" else sinusoidal_2d(grid, d_feat)
        self.register_buffer("image_positions", image_table, persistent=False)
        self.register_buffer("text_positions", sinusoidal(max_tokens, d_feat), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        # (D) Glorot for every matrix as in Vaswani et al.'s code; embeddings have variance 1/E, so that after the
        # factor sqrt(E) they are of the size of the positional encoding.
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embed.weight, std=self.d_feat**-0.5)

    def encode(self, context: ContextSet) -> EncodedImage:
        """Source encoding (section 2.1), and its keys and values for every decoder layer."""
        vectors = self.project(context.vectors)
        expected = self.image_positions.shape[0]
        if vectors.shape[1] != expected:
            raise ValueError(f"{vectors.shape[1]} context vectors came, the model is built for {expected}")
        x = dropout(vectors + self.image_positions.to(vectors.dtype), self.dropout, self.training)
        tau: float | Tensor = temperature(self.scale, x.shape[1], self.d_attn)
        mask = None
        if context.mask is not None:
            mask = context.mask[:, None, None, :]
            if self.scale == "sqrt_len_d":  # d_len counts the keys that may be attended
                tau = (mask.sum(dim=-1, keepdim=True) + self.d_attn).to(x.dtype).sqrt()
        for layer in self.encoder:
            x = layer(x, tau, mask)
        return EncodedImage(tuple(layer.inter_attention.image(x) for layer in self.decoder), tau, mask)

    def forward(self, context: ContextSet, tokens: Tensor, need_weights: bool = False) -> CaptionOutput:
        """Teacher forcing.

        Args:
            context: the images.
            tokens: `[B, N, C]` inputs that begin with BOS; PAD may follow the last word.
            need_weights: also give the inter-attention of the last layer, heads averaged.

        Raises:
            ValueError: C is larger than `max_tokens`.
        """
        hidden, weights = self._decode(context, tokens, need_weights)
        return CaptionOutput(hidden, weights[-1].mean(dim=-2) if need_weights else None)

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """`inter`: `[B, N, C, M, L]`, the inter-attention of every head; M = layers x heads, layer by layer."""
        return {"inter": torch.cat(self._decode(context, tokens, need_weights=True)[1], dim=-2)}

    def _decode(self, context: ContextSet, tokens: Tensor, need_weights: bool) -> tuple[Tensor, list[Tensor]]:
        length = tokens.shape[-1]
        self._check_length(length)
        image = self.encode(context)
        x = self._embed(tokens, self.text_positions[:length])
        mask = causal_mask(length, tokens.device)
        maps = []
        for layer, key_value in zip(self.decoder, image.layers, strict=True):
            x, weights = layer(x, self.text_tau, mask, key_value, image.tau, image.mask, need_weights)
            maps.append(weights)
        return x, maps

    def readout(self, hidden: Tensor) -> Tensor:
        """Logits `[..., V]`; the weights are not tied to the embedding (D)."""
        return self.output(hidden)

    def start(self, context: ContextSet, n: int) -> TransformerState:
        """Encodes each image once, for `n` hypotheses of it."""
        return TransformerState(self.encode(context), n, None)

    def step(self, tokens: Tensor, state: TransformerState) -> Step:
        """Reads one token `[B, N]` of each hypothesis.

        Raises:
            ValueError: `max_tokens` tokens have been read already.
        """
        assert tokens.shape[1] == state.hypotheses
        position = 0 if state.text is None else state.text[0].key.shape[-2]
        self._check_length(position + 1)
        x = self._embed(tokens, self.text_positions[position])
        past = state.text or (None,) * len(self.decoder)
        text = []
        weights: Tensor
        for layer, image, layer_past in zip(self.decoder, state.image.layers, past, strict=True):
            x, longer, weights = layer.step(x, self.text_tau, layer_past, image, state.image.tau, state.image.mask)
            text.append(longer)
        return Step(self.readout(x), weights.mean(dim=1), replace(state, text=tuple(text)))

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        # (D) embeddings times sqrt(d_feat) as in Vaswani et al., section 3.4
        x = self.embed(tokens) * math.sqrt(self.d_feat)
        return dropout(x + positions.to(x.dtype), self.dropout, self.training)

    def _check_length(self, length: int) -> None:
        if length > self.max_tokens:
            raise ValueError(
                f"{length} input tokens came (BOS included), the model is built for max_tokens={self.max_tokens}: "
                "its text temperature (Eq. 2) is fixed to that length. Decode fewer words or train with a larger one."
            )
