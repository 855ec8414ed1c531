"""Captioners with a recurrent decoder: one class, assembled from interchangeable parts.

B images, N captions per image, C input positions, L context vectors of D features, m = d_embed, n =
d_hidden, V words.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Share, Width, validated
from captioning.models.parts.attention import Attention, AttentionStep
from captioning.models.parts.cells import Cell, Memory
from captioning.models.parts.encoders import Encoder, Unchanged
from captioning.models.parts.heads import Head
from captioning.models.parts.image import ImageInput, StateInit
from captioning.models.parts.numerics import dropout, glorot, index_select_hypotheses, initialise
from captioning.models.parts.scores import Score
from captioning.models.parts.steps import unrolled
from captioning.models.protocol import Captioner, CaptionOutput, Policy, Step


class RecurrentImage(NamedTuple):
    """Inputs of every step from the images, computed once for all captions."""

    annotations: Any  # for attention
    constant: Tensor | None  # the image's part of every step of the cell, `[B, 1, K]`


@dataclass(frozen=True)
class RecurrentState:
    """Decode state: the images once, and the memory of each hypothesis.

    Memory is the cell's and, if needed, the last weights.
    """

    image: RecurrentImage
    memory: Memory
    past: Tensor | None = None

    def reorder(self, parents: Tensor) -> Self:
        past = None if self.past is None else index_select_hypotheses([self.past], parents)[0]
        return replace(self, memory=index_select_hypotheses(self.memory, parents), past=past)


class RecurrentOutput(NamedTuple):
    """Result of some steps."""

    hidden: Tensor  # `[B, N, C, E]`, input of `readout`
    looks: list[AttentionStep]
    state: RecurrentState


class Recurrent(Captioner):
    """A recurrent decoder with attention to the image, the mean of its vectors, or both.

    Each part is a function that builds it from the shared sizes (`functools.partial` of a class);
    see the base classes. Without a score that it needs there is no attention. Cell and head share
    one embedding. Dropout is on the initial states and on the input of the last layer, not inside
    the cell (D).
    """

    @validated
    def __init__(
        self,
        vocab_size: int,
        d_context: int,
        grid: Grid,
        *,
        cell: Callable[..., Cell],
        head: Callable[..., Head],
        initial: Callable[..., StateInit],
        score: Callable[..., Score] | None = None,
        attention: Callable[..., Attention] | None = None,
        inject: Callable[..., ImageInput] | None = None,
        encoder: Callable[..., Encoder] | None = None,
        d_embed: Width = 512,
        d_hidden: Width = 1024,
        dropout: Share = 0.5,
    ):
        super().__init__()
        if score and not attention:
            raise ValueError(
                "a score needs attention: set model/attention=soft, or leave it out too "
                "(~model/score)"
            )
        self.dropout = dropout
        self.embed = nn.Embedding(vocab_size, d_embed)
        self.encoder = (encoder or Unchanged)(d_context=d_context, grid=grid)
        d_image = self.encoder.d_out
        look = None
        if attention:
            look = attention(d_context=d_image, d_query=d_hidden, grid=grid, score=score)
            look = look if look.d_value else None
        seen = inject(d_context=d_image, d_word=d_embed, d_hidden=d_hidden) if inject else None
        sizes = {"d_word": d_embed, "d_hidden": d_hidden, "d_context": look.d_value if look else 0}
        unit = cell(**sizes, d_image=seen.d_image if seen and not seen.once else 0)
        if unit.sentinel != (look is not None and look.sentinel):
            raise ValueError(
                "a cell with a sentinel and attention to it need each other: set both "
                "model/cell=sentinel and model/attention=sentinel, or neither"
            )
        self.attends = look is not None and self.encoder.located
        self.stochastic = look is not None and look.stochastic
        self.shares_attention = unit.sentinel or self.encoder.memory > 0
        # registration order determines the order of random draws and of stored parameters
        self.initial = initial(
            d_context=d_image, grid=grid, d_hidden=d_hidden, memories=unit.memories
        )
        self.attention, self.inject, self.cell = look, seen, unit
        self.head = head(**sizes, vocab_size=vocab_size)
        glorot(self)
        initialise(self.cell)
        nn.init.normal_(self.embed.weight, std=0.1)  # (D)
        initialise(self.attention, self.encoder)

    def prepare(self, counts: Callable[[], Tensor], tokenizer_ids: Sequence[int]) -> None:
        if self.head.bias == "frequencies":
            self.head.init_bias_from_counts(counts())

    def forward(
        self,
        context: ContextSet,
        tokens: Tensor,
        need_weights: bool = False,
        sampled: Tensor | None = None,
        uniform: Tensor | None = None,
    ) -> CaptionOutput:
        """Teacher forcing.

        Without `sampled`, attention uses its `mode` and there is no policy.
        """
        state = self.start(context, tokens.shape[1])
        hidden, looks, _ = self._read(state, tokens, sampled, uniform)
        attention = None
        if need_weights and self.attends:
            attention = self.encoder.to_input_grid(_joined(look.alpha for look in looks))
        if sampled is None:
            return CaptionOutput(hidden, attention)
        if not looks or not looks[0].policy:
            raise ValueError(
                "cannot sample locations: the model has no attention, or none that can be sampled"
            )
        # A product would not do: 0 times the minus infinity of a masked location is NaN.
        policies = zip(*(look.policy for look in looks), strict=True)
        log_prob, entropy = (
            _joined(steps).where(sampled[:, None, None], 0.0) for steps in policies
        )
        return CaptionOutput(hidden, attention, Policy(log_prob, entropy, sampled))

    def readout(self, hidden: Tensor) -> Tensor:
        return self.head(dropout(hidden, self.dropout, self.training))

    def start(self, context: ContextSet, n: int) -> RecurrentState:
        context = self.encoder(context)
        annotations = self.attention.read(context) if self.attention else None
        initial = self.initial(context)
        # a separate dropout mask for each caption, as if the image were repeated
        memory = tuple(
            dropout(x[:, None].repeat(1, n, 1), self.dropout, self.training) for x in initial
        )
        constant = None
        if self.inject:
            seen = self.inject(context, initial[0])[:, None]
            if self.inject.once:
                x = self.cell.words(seen)
                memory = self.cell(x, None, self.cell.compute_query(x, memory)[1])
            else:
                constant = self.cell.image(seen)
        return RecurrentState(RecurrentImage(annotations, constant), memory)

    def step(self, tokens: Tensor, state: RecurrentState) -> Step:
        passed = self._read(state, tokens[..., None])
        attention = attended = None
        if self.attends:
            look = passed.looks[0]
            attention = self.encoder.to_input_grid(look.alpha)
            attended = None if look.taken is None else self.encoder.to_input_grid(look.taken)
        return Step(self.readout(passed.hidden[:, :, 0]), attention, passed.state, attended)

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """`alpha`: `[B, N, C, 1, L]`, where there is attention."""
        attention = self(context, tokens, need_weights=True).attention
        return {} if attention is None else {"alpha": attention[..., None, :]}

    @torch.no_grad()
    def attention_shares(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """See `Captioner`; with a sentinel, `image` is 1 - beta_t."""
        shares = self.encoder.attention_shares(context, tokens)
        if self.cell.sentinel:
            looks = self._read(self.start(context, tokens.shape[1]), tokens).looks
            betas = (look.sentinel for look in looks if look.sentinel is not None)
            shares["image"] = 1 - _joined(betas)
        return shares

    def _read(
        self,
        state: RecurrentState,
        tokens: Tensor,
        sampled: Tensor | None = None,
        uniform: Tensor | None = None,
    ) -> RecurrentOutput:
        """Step through tokens `[B, N, C]`."""
        (annotations, constant), memory, past = state.image, state.memory, state.past
        words = self.embed(tokens)
        x = self.cell.words(words)
        if constant is not None:
            x = x + constant[:, None]
        hiddens, looks = [], []
        with unrolled(self.cell, self.attention):
            # Backward would allocate a full tensor of zeros for each slice of x.
            for t, x_t in enumerate(x.unbind(2)):
                query, memory = self.cell.compute_query(x_t, memory)
                z = None
                if self.attention:
                    numbers = None if uniform is None else uniform[..., t]
                    look = self.attention(annotations, query, past, sampled, numbers)
                    z, past = look.context, look.alpha
                    looks.append(look)
                memory = self.cell(x_t, z, memory)
                hiddens.append(memory[0])
        contexts = _joined(look.context for look in looks) if looks else None
        hidden = self.head.features(words, _joined(hiddens), contexts)
        kept = past if self.attention and self.attention.needs_previous_weights else None
        return RecurrentOutput(hidden, looks, replace(state, memory=memory, past=kept))


def _joined(steps: Iterable[Tensor]) -> Tensor:
    """Stack C tensors `[B, N, ...]` as `[B, N, C, ...]`."""
    steps = list(steps)
    return torch.stack(steps, dim=2) if len(steps) > 1 else steps[0].unsqueeze(2)
