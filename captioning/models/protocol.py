"""The interface of captioners to training, decoding and figures.

B images, N captions (or hypotheses) per image, C prediction steps, E hidden features, L context
vectors, V words.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from torch import Tensor, nn

from captioning.backbones.context import ContextSet


@dataclass(frozen=True)
class Policy:
    """Sampled attention of a pass.

    s_t is the location that each step of a sampled image attends to.
    """

    log_prob: Tensor  # `[B, N, C]`, log alpha_t(s_t); 0 where not sampled
    entropy: Tensor  # `[B, N, C]`, of alpha_t in nats; 0 where not sampled
    sampled: Tensor  # `[B]` bool


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Step:
    """Result of one decoding step."""

    logits: Tensor  # `[B, N, V]`
    attention: Tensor | None  # `[B, N, L]`; None for a model without attention
    state: DecodeState  # after this step
    attended: Tensor | None = None  # `[B, N, L]`, one-hot, the location that hard attention took

    @property
    def maps(self) -> tuple[Tensor, ...]:
        return tuple(alpha for alpha in (self.attention, self.attended) if alpha is not None)


class Captioner(nn.Module, ABC):
    """Base class of captioners: four methods, and attributes that tell what else one can do.

    Attributes:
        attends: whether it has a map of the image for each word. An objective that needs one is
            refused before data are read.
        parallel: whether all words of a caption are read at once.
        stochastic: whether it learns from sampled locations, see `forward`.
        heads: the number of maps of a layer in `attention_maps`; None: maps are numbered.
        shares_attention: whether `attention_shares` has any.

    Example:
        The next word by the image and the last word alone, so that the state is the image's:

        >>> import torch
        >>> class Image:
        ...     def __init__(self, hidden):
        ...         self.hidden = hidden  # [B, 1, E]
        ...
        ...     def reorder(self, parents):
        ...         return self
        >>> class Bigrams(Captioner):
        ...     attends = False
        ...
        ...     def __init__(self, vocab_size, d_context, grid, d_hidden=8):
        ...         super().__init__()
        ...         self.image = nn.Linear(d_context, d_hidden)
        ...         self.embed = nn.Embedding(vocab_size, d_hidden)
        ...         self.output = nn.Linear(d_hidden, vocab_size)
        ...
        ...     def start(self, context, n):
        ...         return Image(self.image(context.mean())[:, None])
        ...
        ...     def step(self, tokens, state):
        ...         return Step(self.readout(state.hidden + self.embed(tokens)), None, state)
        ...
        ...     def forward(self, context, tokens, need_weights=False):
        ...         image = self.start(context, 1).hidden[:, None]
        ...         return CaptionOutput(image + self.embed(tokens))
        ...
        ...     def readout(self, hidden):
        ...         return self.output(hidden)
        >>> model = Bigrams(vocab_size=9, d_context=3, grid=(1, 2))
        >>> context = ContextSet(torch.zeros(2, 2, 3), (1, 2))
        >>> tokens = torch.tensor([[[1, 5, 6]], [[1, 5, 7]]])  # [B, N, C], from BOS on
        >>> every = model.readout(model(context, tokens).hidden)  # [B, N, C, V]
        >>> last = model.step(tokens[..., -1], model.start(context, 1)).logits  # [B, N, V]
        >>> every.shape, torch.allclose(every[:, :, -1], last)
        (torch.Size([2, 1, 3, 9]), True)
    """

    attends = True
    parallel = False
    stochastic = False
    heads: int | None = None
    shares_attention = False
    __call__: Callable[..., CaptionOutput]

    @property
    def pretrained(self) -> Sequence[nn.Parameter]:
        """Parameters of a pretrained language model, which may have a rate of their own."""
        return ()

    def prepare(self, counts: Callable[[], Tensor], tokenizer_ids: Sequence[int]) -> None:
        """Set initial weights that depend on the words; not called with `init_from`.

        Args:
            counts: gives `[V]`, how often each token occurs in the training captions.
            tokenizer_ids: of subwords, the tokenizer's ids of our ids from 4 on.

        Raises:
            ValueError: a setting does not fit; its name comes first.
        """

    @abstractmethod
    def forward(
        self, context: ContextSet, tokens: Tensor, need_weights: bool = False
    ) -> CaptionOutput:
        """Teacher forcing on `tokens` `[B, N, C]`.

        They begin with BOS; PAD may follow the last word.

        A stochastic captioner also takes `sampled` `[B]` and `uniform`: sampled images attend to
        locations that are drawn by `uniform` `[B, N, C]` in [0, 1), or torch's generator, and for
        these there is a policy. Others take the expected context.
        """

    @abstractmethod
    def readout(self, hidden: Tensor) -> Tensor:
        """Logits `[..., V]` of hidden features `[..., E]`."""

    @abstractmethod
    def start(self, context: ContextSet, n: int) -> Any:
        """The `DecodeState` of `n` equal hypotheses per image."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> Step:
        """Decode one step from the last token of each hypothesis, `[B, N]`; BOS at first."""

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """Named maps `[B, N, C, M, L]` for figures; M is 1, or layers x heads, layer by layer."""
        return {}

    def attention_shares(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """Shares of the weights `[B, N, C]` to log: `image`, against words, or `memory`."""
        return {}
