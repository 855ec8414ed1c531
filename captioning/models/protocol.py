"""The interface of captioners to training, decoding and pictures.

B images, N captions (or hypotheses) per image, C prediction steps, E hidden features, L context vectors, V words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from torch import Tensor

from captioning.backbones.context import ContextSet


@dataclass(frozen=True, slots=True)
class Policy:
    """The random choices of a pass: the location s_t that each step of a sampled image attends to."""

    log_prob: Tensor  # `[B, N, C]`, log alpha_t(s_t); 0 where not sampled
    entropy: Tensor  # `[B, N, C]`, of alpha_t in nats; 0 where not sampled
    sampled: Tensor  # `[B]` bool


@dataclass(frozen=True, slots=True)
class CaptionOutput:
    """The parallel forward pass over given captions."""

    hidden: Tensor  # `[B, N, C, E]`, what `readout` turns into logits
    attention: Tensor | None = None  # `[B, N, C, L]`, the map of each step as shown in pictures, where asked for
    policy: Policy | None = None  # of a pass along sampled paths (hard attention)


class DecodeState(Protocol):
    """A model's memory between two steps; a value, never a buffer of the model."""

    def reorder(self, parents: Tensor) -> Self:
        """The state of hypotheses that continue `parents` `[B, N]`; what belongs to the image is shared."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of decoding."""

    logits: Tensor  # `[B, N, V]`
    attention: Tensor | None  # `[B, N, L]`; None for a model without attention
    state: DecodeState  # after this step
    attended: Tensor | None = None  # `[B, N, L]`, what hard attention took in the place of `attention`

    @property
    def maps(self) -> tuple[Tensor, ...]:
        return tuple(each for each in (self.attention, self.attended) if each is not None)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Every attention weight of a pass over one caption of T words per image, with K vectors after the encoder."""

    logits: Tensor  # `[B, T, V]`
    encoder: Sequence[Tensor]  # `[B, H, K, K]`
    text: Sequence[Tensor]  # `[B, H, T, T]`, of the decoder's self-attention
    inter: Sequence[Tensor]  # `[B, H, T, K]`
    shares: Callable[[Tensor], Tensor]  # from weights over the K vectors to those over the L of the image


class Captioner(Protocol):
    """The verbs that every captioning model has.

    Optional: `attends = False` without attention, so that an objective that needs it is refused before data are read;
    `parallel = True` where all words of a caption are read at once; `heads`, the maps of each layer.
    """

    def __call__(self, context: ContextSet, tokens: Tensor, need_weights: bool = False) -> CaptionOutput:
        """Teacher forcing: inputs `tokens` `[B, N, C]` begin with BOS; PAD may follow the last word."""

    def readout(self, hidden: Tensor) -> Tensor:
        """Logits `[..., V]` of hidden features `[..., E]`."""

    def start(self, context: ContextSet, n: int) -> DecodeState:
        """The state of `n` equal hypotheses per image before the first word."""

    def step(self, tokens: Tensor, state: DecodeState) -> Step:
        """Read the last token of each hypothesis, `[B, N]`, BOS first."""

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """Named maps `[B, N, C, M, L]` for pictures; M is layers x heads, layer by layer, or one."""


class LayeredCaptioner(Captioner, Protocol):
    """A stack of layers of attention, whose weights tell what each word depends on."""

    def layer_weights(self, context: ContextSet, tokens: Tensor) -> LayerWeights:
        """Teacher forcing on one caption of each image, `[B, T]`; weights have gradients where gradients are on."""


class StochasticCaptioner(Captioner, Protocol):
    """A captioner with `stochastic = True`: it can attend to sampled locations, and so learn from them."""

    stochastic: bool

    def __call__(
        self,
        context: ContextSet,
        tokens: Tensor,
        need_weights: bool = False,
        sampled: Tensor | None = None,
        uniform: Tensor | None = None,
    ) -> CaptionOutput:
        """As `Captioner`, with a policy if `sampled` `[B]` tells which images attend to sampled locations.

        They are drawn by `uniform` `[B, N, C]` in [0, 1), or by torch's generator. Others take the expected context.
        """
