"""Ensembles of captioners: the mean of their probabilities.

B images, N hypotheses per image, V words, L context vectors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.parts.numerics import at_least_single
from captioning.models.protocol import Captioner, CaptionOutput, DecodeState, Step


class EnsembleContext(tuple[ContextSet, ...]):
    """The same B images from each member's backbone.

    `vectors` and `mask` are the first member's.
    """

    __slots__ = ()

    @property
    def vectors(self) -> Tensor:
        return self[0].vectors

    @property
    def mask(self) -> Tensor | None:
        return self[0].mask


@dataclass(frozen=True)
class EnsembleState:
    """The states of all members."""

    members: tuple[DecodeState, ...]

    def reorder(self, parents: Tensor) -> Self:
        return type(self)(tuple(member.reorder(parents) for member in self.members))


class Ensemble:
    """Decode several captioners as one: the mean of their probabilities over one vocabulary."""

    def __init__(self, models: Sequence[Captioner]):
        self.models = models

    def __call__(self, context: EnsembleContext, tokens: Tensor) -> CaptionOutput:
        """Teacher forcing; `hidden` `[B, N, C, V]` are logarithms of mean probabilities."""
        pairs = zip(self.models, context, strict=True)
        return CaptionOutput(_joined([m.readout(m(c, tokens).hidden) for m, c in pairs]))

    def readout(self, hidden: Tensor) -> Tensor:
        return hidden

    def start(self, context: EnsembleContext, n: int) -> EnsembleState:
        return EnsembleState(
            tuple(m.start(c, n) for m, c in zip(self.models, context, strict=True))
        )

    def step(self, tokens: Tensor, state: EnsembleState) -> Step:
        """One step; attention is the mean of the members' maps, or None if these differ in size."""
        steps = [m.step(tokens, s) for m, s in zip(self.models, state.members, strict=True)]
        maps = [s.attention for s in steps if s.attention is not None]
        alike = len(maps) == len(steps) and len({x.shape for x in maps}) == 1
        return Step(
            _joined([s.logits for s in steps]),
            torch.stack(maps).mean(0) if alike else None,
            EnsembleState(tuple(s.state for s in steps)),
        )


def _joined(logits: Sequence[Tensor]) -> Tensor:
    log_probs = [at_least_single(x).log_softmax(-1) for x in logits]
    return torch.stack(log_probs).logsumexp(0) - math.log(len(logits))
