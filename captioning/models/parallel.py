"""Captioners that read all words of a caption at once, by layers that attend to the image.

B images, N captions per image, T tokens, H heads, L context vectors, of which an encoder makes K.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.parts.encoders import Encoder
from captioning.models.parts.multi_head import LayersState
from captioning.models.protocol import Captioner, CaptionOutput, Step


class DecoderOutput(NamedTuple):
    """Result of all layers of the decoder."""

    hidden: Tensor  # `[B, N, T, E]`
    state: LayersState
    inter: Sequence[Tensor]  # weights over the image, of the layers that were asked


class ParallelCaptioner(Captioner):
    """Base class, whose state has `image.layers`, one entry per layer; see `Captioner`."""

    encoder: Encoder
    parallel = True

    @abstractmethod
    def read(self, state: LayersState, tokens: Tensor, maps: int) -> DecoderOutput:
        """Process tokens `[B, N, T]`; `inter` is needed of the last `maps` layers."""

    @abstractmethod
    def heads_of(self, weights: Tensor, tokens: Tensor) -> Tensor:
        """A layer's weights as `[B, N, T, H, K]`, those of a prefix with a sum of one (D)."""

    def forward(
        self, context: ContextSet, tokens: Tensor, need_weights: bool = False
    ) -> CaptionOutput:
        """Teacher forcing; the map is that of the last layer, averaged over heads."""
        state = self.start(context, tokens.shape[1])
        passed = self.read(state, tokens, need_weights and self.attends)
        return CaptionOutput(passed.hidden, self._map(passed, tokens))

    def step(self, tokens: Tensor, state: LayersState) -> Step:
        tokens = tokens[..., None]
        passed = self.read(state, tokens, self.attends)
        alpha = self._map(passed, tokens)
        attention = None if alpha is None else alpha[:, :, 0]
        return Step(self.readout(passed.hidden[:, :, 0]), attention, passed.state)

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """The attention of every head to the image, renormalised for a prefix: maps called `inter`,
        `[B, N, C, M, L]`.
        """
        if not self.attends:
            return {}
        state = self.start(context, 1)
        layers = self.read(state, tokens, len(state.image.layers)).inter
        maps = [self.encoder.to_input_grid(self.heads_of(alpha, tokens)) for alpha in layers]
        return {"inter": torch.cat(maps, dim=-2)}

    def _map(self, passed: DecoderOutput, tokens: Tensor) -> Tensor | None:
        """The last layer's weights averaged over heads, `[B, N, T, L]`, if they were needed."""
        if not passed.inter:
            return None
        return self.encoder.to_input_grid(self.heads_of(passed.inter[-1], tokens).mean(-2))
