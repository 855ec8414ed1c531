"""Generated captions, and the log-probabilities that every search builds them from.

B images, N hypotheses per image, V words, L context vectors, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from captioning.decoding.filters import Filter
from captioning.tokens import BOS, EOS, PAD, UNK

FORBIDDEN = (PAD, BOS, UNK)
"""Tokens that captions never contain."""


@dataclass(frozen=True, slots=True)
class Caption:
    """A generated caption.

    Attributes:
        tokens: the T generated ids without BOS; the last is EOS unless the caption was cut at the maximum length.
        score: by which the search ranked: the log-probability of `tokens`, length-normalised in beam search.
        attention: `[T, L]` on the CPU, the map of the step that predicted each token; None without attention.
        alternatives: further captions of the image, best first; these have no alternatives of their own.
        attended: `[T, L]`, the location that hard attention took at each step; None if it took the expected context.
        entropy: in nats, of the distribution that each token was chosen from, if measured (`with_entropy`).
    """

    tokens: list[int]
    score: float
    attention: Tensor | None
    alternatives: list[Self] = field(default_factory=list)
    attended: Tensor | None = None
    entropy: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, tokens: list[int], score: float, maps: Sequence[Tensor]) -> Self:
        """A caption whose steps had the maps `Step.maps`, each `[T, L]`."""
        attention, attended = (*maps, None, None)[:2]
        return cls(tokens, score, attention, attended=attended)

    @property
    def finished(self) -> bool:
        """True if the caption ended by itself, False if it was cut."""
        return bool(self.tokens) and self.tokens[-1] == EOS


def best_first(captions: list[Caption]) -> Caption:
    """The caption of the highest score (of equal ones the first), with the others as its alternatives."""
    best, *others = sorted(captions, key=lambda caption: -caption.score)
    return replace(best, alternatives=others)


def log_probs(
    logits: Tensor, forbidden: Sequence[int], filters: Filter | None = None, history: Tensor | None = None
) -> Tensor:
    """Log-softmax over logits `[B, N, V]`, minus infinity at forbidden ids; at least single precision.

    `filters` depend on `history`, the ids generated so far, `[B, N, T]`; a hypothesis to which they leave nothing may
    end.
    """
    result = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    # Not renormalised: the score of a caption stays the model's own log-probability.
    eos = result[..., EOS].clone()
    result[..., list(forbidden)] = float("-inf")
    if filters is not None:
        assert history is not None
        result = filters(result, history)
        nothing = (result == float("-inf")).all(dim=-1)
        result[..., EOS] = torch.where(nothing, eos, result[..., EOS])
    return result
