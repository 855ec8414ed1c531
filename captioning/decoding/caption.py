"""Generated captions. PyTorch is not imported, since the searches are declared with it.

L context vectors, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from captioning.tokens import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from torch import Tensor

FORBIDDEN = (PAD, BOS, UNK)
"""Tokens that captions never contain."""


@dataclass(frozen=True, slots=True)
class GeneratedCaption:
    """A generated caption.

    Attributes:
        tokens: the T generated ids without BOS; the last is EOS unless the caption was cut at the
            maximum length.
        score: the log-probability of `tokens`, length-normalised in beam search.
        attention: `[T, L]` on the CPU, the map of the step that predicted each token; None without
            attention.
        alternatives: further captions of the image, best first, without `alternatives`.
        attended: `[T, L]`, the location that hard attention took at each step; None if it took the
            expected context.
        entropy: entropy in nats of the distribution of each token, if measured (`with_entropy`).
    """

    tokens: list[int]
    score: float
    attention: "Tensor | None"
    alternatives: list["GeneratedCaption"] = field(default_factory=list)
    attended: "Tensor | None" = None
    entropy: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, tokens: list[int], score: float, maps: "Sequence[Tensor]") -> Self:
        """Make a caption from its steps' `Step.maps`, each `[T, L]`."""
        attention, attended = (*maps, None, None)[:2]
        return cls(tokens, score, attention, attended=attended)

    @property
    def every(self) -> list["GeneratedCaption"]:
        """This caption and its alternatives."""
        return [self, *self.alternatives]

    def word_entropies(self, numbers: Sequence[int]) -> list[float]:
        """The entropies of its words and its end, the sums over their pieces; none if unknown.

        `numbers` are those of each token's word (`Vocabulary.word_numbers`), without the end.
        """
        if not self.entropy:
            return []
        sums = [0.0] * (max(numbers, default=-1) + 1)
        for number, value in zip(numbers, self.entropy, strict=False):
            sums[number] += value
        return [*sums, *self.entropy[len(numbers) :]]

    def without_maps(self) -> Self:
        """The captions alone, which need little memory."""
        alternatives = [caption.without_maps() for caption in self.alternatives]
        return replace(self, attention=None, attended=None, alternatives=alternatives)

    @property
    def finished(self) -> bool:
        """True if the caption ends with EOS, False if it was cut."""
        return bool(self.tokens) and self.tokens[-1] == EOS


def best_first(captions: list[GeneratedCaption]) -> GeneratedCaption:
    """The first caption with the highest score, with the others as its alternatives."""
    best, *others = sorted(captions, key=lambda caption: -caption.score)
    return replace(best, alternatives=others)
