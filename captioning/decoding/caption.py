"""What decoding gives for one image."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from captioning.tokens import BOS, EOS, PAD, UNK

FORBIDDEN = (PAD, BOS, UNK)
"""Tokens that no caption may hold."""


@dataclass(frozen=True, slots=True)
class Caption:
    """A generated caption.

    Attributes:
        tokens: the T generated ids without BOS; the last is EOS unless the caption was cut at the maximum length.
        score: what the search ranked by: the log-probability of `tokens`, length-normalised where the search is.
        attention: `[T, L]` on the CPU, the map of the step that predicted each token; None for a model without
            attention.
        alternatives: further captions of the image, where the search was asked for several, best first; none of them
            has alternatives of its own.
        attended: `[T, L]` likewise, the location that hard attention took at each step; None where it took the expected
            context.
        entropy: in nats, of the distribution that each token was chosen from, where `captioning.decoding.entropy` has
            measured it.
    """

    tokens: list[int]
    score: float
    attention: Tensor | None
    alternatives: list[Self] = field(default_factory=list)
    attended: Tensor | None = None
    entropy: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, tokens: list[int], score: float, maps: Sequence[Tensor]) -> Self:
        """A caption whose steps had these `Step.maps`, each `[T, L]`."""
        attention, attended = (*maps, None, None)[:2]
        return cls(tokens, score, attention, attended=attended)

    @property
    def finished(self) -> bool:
        """Whether the caption ended by itself."""
        return bool(self.tokens) and self.tokens[-1] == EOS


def best_first(captions: list[Caption]) -> Caption:
    """The caption of the highest score, the others its alternatives; of equal ones the first."""
    best, *others = sorted(captions, key=lambda caption: -caption.score)
    return replace(best, alternatives=others)
