"""Captioners whose decoder is recurrent: one class, and a system is a choice of parts.

B images, N captions per image, C input positions, L context vectors of D features, m = d_embed, n = d_hidden, V words.
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
from captioning.models.parts.encoders import Encoder
from captioning.models.parts.heads import Head
from captioning.models.parts.image import Initial, Inject
from captioning.models.parts.numerics import dropout, glorot
from captioning.models.parts.scores import Score
from captioning.models.protocol import CaptionOutput, Policy, Step


class Image(NamedTuple):
    """Inputs of every step from the images, computed once for all of their captions."""

    annotations: Any  # for attention
    constant: Tensor | None  # the image's part of every step of the cell, `[B, 1, K]`


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """Decode state: the images once, and of each hypothesis the memory of the cell and the last weights, if needed."""

    image: Image
    memory: Memory
    past: Tensor | None = None

    def reorder(self, parents: Tensor) -> Self:
        """See `DecodeState.reorder`."""
        rows = torch.arange(parents.shape[0], device=parents.device)[:, None]
        memory = tuple(kept[rows, parents] for kept in self.memory)
        return replace(self, memory=memory, past=None if self.past is None else self.past[rows, parents])


class Recurrent(nn.Module):
    """A decoder that steps a cell from word to word, with attention to the image, its mean or both.

    Parts are given as functions that build them from the sizes that they share (`functools.partial` of a class).

    Args:
        vocab_size: V.
        d_context: D of the backbone.
        grid: (h, w) of the backbone, for parts of a fixed size.
        cell: gives the next state.
        head: gives the logits of the next word.
        initial: gives the state before the first word.
        score: how well each context vector fits a state; None: there is no attention.
        attention: what becomes of the scores.
        inject: gives the cell the mean of the image, before the first word or at every step; None: nothing does.
        encoder: from context set to context set, before all of them.
        d_embed: m; one embedding serves cell and head.
        d_hidden: n.
        dropout: on the initial states and on the argument of the last layer, not inside the cell (D).
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
        initial: Callable[..., Initial],
        score: Callable[..., Score] | None = None,
        attention: Callable[..., Attention] | None = None,
        inject: Callable[..., Inject] | None = None,
        encoder: Callable[..., Encoder] | None = None,
        d_embed: Width = 512,
        d_hidden: Width = 1024,
        dropout: Share = 0.5,
    ) -> None:
        super().__init__()
        if score and not attention:
            raise ValueError("a score needs attention: set model/attention=soft, or leave it out too (~model/score)")
        self.dropout = dropout
        self.embed = nn.Embedding(vocab_size, d_embed)
        self.encoder = encoder(d_context=d_context, grid=grid) if encoder else None
        d_image = self.encoder.d_out if self.encoder else d_context
        attending = (
            attention(d_context=d_image, d_query=d_hidden, grid=grid, score=score) if attention and score else None
        )
        shown = inject(d_context=d_image, d_word=d_embed, d_hidden=d_hidden) if inject else None
        each_step = shown.d_image if shown and not shown.once else 0
        sizes = {"d_word": d_embed, "d_hidden": d_hidden, "d_context": attending.d_value if attending else 0}
        built = cell(**sizes, d_image=each_step)
        # in the order in which they are drawn
        self.initial = initial(d_context=d_image, grid=grid, d_hidden=d_hidden, memories=built.memories)
        self.attention = attending
        self.inject = shown
        self.cell = built
        self.head = head(**sizes, vocab_size=vocab_size)
        glorot(self)
        built.initialise()
        nn.init.normal_(self.embed.weight, std=0.1)  # (D)
        for part in (self.attention, self.encoder):
            if part:
                part.initialise()

    @property
    def attends(self) -> bool:
        return self.attention is not None

    @property
    def stochastic(self) -> bool:
        return self.attention is not None and self.attention.stochastic

    def forward(
        self,
        context: ContextSet,
        tokens: Tensor,
        need_weights: bool = False,
        sampled: Tensor | None = None,
        uniform: Tensor | None = None,
    ) -> CaptionOutput:
        """See `StochasticCaptioner`; without `sampled`, `choice` is every image's, and there is no policy."""
        features, looked, _ = self._read(self.start(context, tokens.shape[1]), tokens, sampled, uniform)
        attention = self._shares(_joined(step.alpha for step in looked)) if looked and need_weights else None
        return CaptionOutput(features, attention, None if sampled is None else _policy(looked, sampled))

    def readout(self, hidden: Tensor) -> Tensor:
        """Logits `[..., V]`."""
        return self.head(dropout(hidden, self.dropout, self.training))

    def start(self, context: ContextSet, n: int) -> RecurrentState:
        """Read each image once, for `n` hypotheses of it."""
        if self.encoder:
            context = self.encoder(context)
        annotations = self.attention.read(context) if self.attention else None
        initial = self.initial(context)
        # of each caption its own dropout, as if the image came once per caption
        memory = tuple(dropout(x[:, None].repeat(1, n, 1), self.dropout, self.training) for x in initial)
        constant = None
        if self.inject:
            shown = self.inject(context, initial[0])[:, None]
            if self.inject.once:
                x = self.cell.words(shown)
                memory = self.cell(x, None, self.cell.ask(x, memory)[1])
            else:
                constant = self.cell.image(shown)
        return RecurrentState(Image(annotations, constant), memory)

    def step(self, tokens: Tensor, state: RecurrentState) -> Step:
        """Read one token `[B, N]` of each hypothesis."""
        features, looked, state = self._read(state, tokens[..., None])
        alpha, taken = (looked[0].alpha, looked[0].taken) if looked else (None, None)
        shown, attended = (None if each is None else self._shares(each) for each in (alpha, taken))
        return Step(self.readout(features[:, :, 0]), shown, state, attended)

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """`alpha`: `[B, N, C, 1, L]`, where there is attention."""
        attention = self(context, tokens, need_weights=True).attention
        return {} if attention is None else {"alpha": attention[..., None, :]}

    def _shares(self, alpha: Tensor) -> Tensor:
        return self.encoder.shares(alpha) if self.encoder else alpha

    def _read(
        self, state: RecurrentState, tokens: Tensor, sampled: Tensor | None = None, uniform: Tensor | None = None
    ) -> tuple[Tensor, list[AttentionStep], RecurrentState]:
        """Step through tokens `[B, N, C]`: input of `readout`, steps of attention, and the state after."""
        (annotations, constant), memory, past = state.image, state.memory, state.past
        words = self.embed(tokens)
        x = self.cell.words(words)
        if constant is not None:
            x = x + constant[:, None]
        hiddens: list[Tensor] = []
        looked: list[AttentionStep] = []
        for t, x_t in enumerate(x.unbind(dim=2)):  # slices would cost a whole zero tensor each in backward
            query, memory = self.cell.ask(x_t, memory)
            attended = None
            if self.attention:
                drawn = None if uniform is None else uniform[..., t]
                step = self.attention(annotations, query, past, sampled, drawn)
                attended, past = step.context, step.alpha
                looked.append(step)
            memory = self.cell(x_t, attended, memory)
            hiddens.append(memory[0])
        contexts = _joined(step.context for step in looked) if looked else None
        features = self.head.features(words, _joined(hiddens), contexts)
        kept = past if self.attention and self.attention.looks_back else None
        return features, looked, replace(state, memory=memory, past=kept)


def _joined(steps: Iterable[Tensor]) -> Tensor:
    """C tensors `[B, N, ...]` as `[B, N, C, ...]`."""
    steps = list(steps)
    return torch.stack(steps, dim=2) if len(steps) > 1 else steps[0].unsqueeze(2)


def _policy(looked: Sequence[AttentionStep], sampled: Tensor) -> Policy:
    if not looked or not looked[0].policy:
        raise ValueError("cannot sample locations: the model has no attention, or none that can be sampled")
    where = sampled[:, None, None]
    # not a product: 0 times the minus infinity of a masked location is not a number
    log_prob, entropy = map(_joined, zip(*(step.policy for step in looked), strict=True))
    return Policy(log_prob.where(where, 0.0), entropy.where(where, 0.0), sampled)
