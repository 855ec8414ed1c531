"""The interface of captioners to training, decoding and figures.

B images, N captions (or hypotheses) per image, C prediction steps, E hidden features, L context
vectors, V words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from torch import Tensor

from captioning.backbones.context import ContextSet


@dataclass(frozen=True, slots=True)
class Policy:
    """Sampled attention of a pass.

    s_t is the location that each step of a sampled image attends to.
    """

    log_prob: Tensor  # `[B, N, C]`, log alpha_t(s_t); 0 where not sampled
    entropy: Tensor  # `[B, N, C]`, of alpha_t in nats; 0 where not sampled
    sampled: Tensor  # `[B]` bool


@dataclass(frozen=True, slots=True)
class CaptionOutput:
    """Result of the parallel forward pass over given captions."""

    hidden: Tensor  # `[B, N, C, E]`, input of `readout`
    # `[B, N, C, L]`: the map of each step as shown in figures, if requested.
    attention: Tensor | None = None
    policy: Policy | None = None  # of a pass with sampled locations (hard attention)


class DecodeState(Protocol):
    """Memory between two decoding steps; a value, never a buffer of the model."""

    def reorder(self, parents: Tensor) -> Self:
        """The state of hypotheses that continue `parents` `[B, N]`.

        Tensors of the image are shared.
        """


@dataclass(frozen=True, slots=True)
class Step:
    """Result of one decoding step."""

    logits: Tensor  # `[B, N, V]`
    attention: Tensor | None  # `[B, N, L]`; None for a model without attention
    state: DecodeState  # after this step
    attended: Tensor | None = None  # `[B, N, L]`, one-hot, the location that hard attention took

    @property
    def maps(self) -> tuple[Tensor, ...]:
        return tuple(alpha for alpha in (self.attention, self.attended) if alpha is not None)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """All attention weights of a pass over one caption of T words per image.

    There are K vectors after the encoder.
    """

    logits: Tensor  # `[B, T, V]`
    encoder: Sequence[Tensor]  # `[B, H, K, K + M]`, also of a prefix; the last M on memory
    text: Sequence[Tensor]  # `[B, H, T, T]`, of the decoder's self-attention
    inter: Sequence[Tensor]  # `[B, H, T, K]`
    # Maps weights over the K vectors to weights over the image's L vectors.
    to_input_grid: Callable[[Tensor], Tensor]
    # Of a prefix: the number of `encoder` below the vectors of each decoder layer; else all.
    below: Sequence[int] = ()


@runtime_checkable
class Captioner(Protocol):
    """Methods of every captioning model.

    Optional: `attends = False` without attention, so that an objective that needs it fails before
    data are read; `parallel = True` if all words of a caption are read at once; `heads`, the number
    of maps per layer; `shares_attention = True` with `attention_shares(context, tokens)`, shares of
    the weights `[B, N, C]` to log: `image`, against words, or `memory`.
    """

    def __call__(
        self, context: ContextSet, tokens: Tensor, need_weights: bool = False
    ) -> CaptionOutput:
        """Teacher forcing on `tokens` `[B, N, C]`.

        They begin with BOS; PAD may follow the last word.
        """

    def readout(self, hidden: Tensor) -> Tensor:
        """Logits `[..., V]` of hidden features `[..., E]`."""

    def start(self, context: ContextSet, n: int) -> DecodeState:
        """The state of `n` equal hypotheses per image."""

    def step(self, tokens: Tensor, state: DecodeState) -> Step:
        """Decode one step from the last token of each hypothesis, `[B, N]`; BOS at first."""

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """Named maps `[B, N, C, M, L]` for figures; M is 1, or layers x heads, layer by layer."""


class LayeredCaptioner(Captioner, Protocol):
    """A captioner with layers of attention, all weights of which can be returned."""

    def layer_weights(self, context: ContextSet, tokens: Tensor) -> LayerWeights:
        """Teacher forcing on one caption per image, `[B, T]`.

        With gradients enabled, weights have them.
        """


class StochasticCaptioner(Captioner, Protocol):
    """A captioner that can learn from sampled locations (`stochastic = True`)."""

    stochastic: bool

    def __call__(
        self,
        context: ContextSet,
        tokens: Tensor,
        need_weights: bool = False,
        sampled: Tensor | None = None,
        uniform: Tensor | None = None,
    ) -> CaptionOutput:
        """Like `Captioner`; images of `sampled` `[B]` attend to sampled locations.

        For these there is a policy.

        Locations are drawn by `uniform` `[B, N, C]` in [0, 1), or torch's generator. Others take
        the expected context.
        """
