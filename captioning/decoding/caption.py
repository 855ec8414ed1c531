"""Generated captions, and the log-probabilities that searches rank them by.

B images, N hypotheses per image, V words, L context vectors, T tokens.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import torch
from torch import Tensor

from captioning.config.types import Length
from captioning.decoding.filters import Filter
from captioning.models.parts.numerics import at_least_single
from captioning.tokens import BOS, EOS, PAD, UNK

FORBIDDEN = (PAD, BOS, UNK)
"""Tokens that captions never contain."""
AnyFilter = Filter | Callable[[Tensor, Tensor], Tensor]
"""A filter of words, or a function of ids: of log-probabilities `[B, N, V]` and the ids `[B, N, T]`
so far, without BOS and with PAD after an end. It returns log-probabilities `[B, N, V]`, minus
infinity for forbidden ids.
"""
MaxLength = Annotated[
    Length, "longest caption, in words: or in pieces of subwords; the end counts as one"
]
EVERY = {"cpu": 1, "others": 4}
"""Steps between two questions whether all captions have ended, by device; further steps change
none.
"""


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
        problem: why there are no tokens, of a server that was asked and gave none.
        entropy: entropy in nats of the distribution of each token, if measured (`with_entropy`).
    """

    tokens: list[int]
    score: float
    attention: Tensor | None
    alternatives: list["GeneratedCaption"] = field(default_factory=list)
    attended: Tensor | None = None
    entropy: list[float] = field(default_factory=list)
    problem: str = ""

    @classmethod
    def of(cls, tokens: list[int], score: float, maps: Sequence[Tensor]) -> Self:
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


def to_captions(
    tokens: Tensor, lengths: Tensor, scores: Tensor, maps: Sequence[Tensor]
) -> list[list[GeneratedCaption]]:
    """Captions of each image from `tokens` `[B, N, T]`.

    `lengths` and `scores` are `[B, N]`, maps `[B, N, T, L]`.
    """
    maps = [alpha.cpu() for alpha in maps]
    columns = tokens.tolist(), lengths.tolist(), scores.tolist()
    return [
        [
            GeneratedCaption.of(row[:length], score, [alpha[i, j, :length] for alpha in maps])
            for j, (row, length, score) in enumerate(zip(*image, strict=True))
        ]
        for i, image in enumerate(zip(*columns, strict=True))
    ]


def all_ended(ended: Tensor, step: int) -> bool:
    """Return True if every caption has ended.

    A GPU is asked only at some steps, since asking waits for it.
    """
    every = EVERY.get(ended.device.type, EVERY["others"])
    return step % every == 0 and bool(ended.all())


def best_first(captions: list[GeneratedCaption]) -> GeneratedCaption:
    """The first caption with the highest score, with the others as its alternatives."""
    best, *others = sorted(captions, key=lambda caption: -caption.score)
    return replace(best, alternatives=others)


def log_probs(
    logits: Tensor,
    forbidden: Sequence[int],
    filters: AnyFilter | None = None,
    history: Tensor | None = None,
    left: float = math.inf,
) -> Tensor:
    """Log-softmax of logits `[B, N, V]` in at least single precision.

    Minus infinity at forbidden ids.

    `filters` depend on `history` `[B, N, T]`, the ids generated so far, and on the number of tokens
    `left` until the caption is cut, this one included. A hypothesis without allowed words may end.
    """
    result = at_least_single(logits).log_softmax(-1)
    # Not renormalised, so that the score of a caption is the model's log-probability.
    eos = result[..., EOS].clone()
    result.index_fill_(-1, on_device(forbidden, result.device), float("-inf"))
    if filters is not None:
        assert history is not None
        if not isinstance(filters, Filter):
            result = filters(result, history)
        elif not filters.idle:
            hypotheses = history.flatten(0, 1).tolist()
            allowed = torch.from_numpy(filters.allowed(hypotheses, result.shape[-1], left))
            forbidden_here = ~allowed.to(result.device, non_blocking=True).view_as(result)
            result = result.masked_fill(forbidden_here, -torch.inf)
        nothing = (result == float("-inf")).all(-1)
        result[..., EOS] = eos.where(nothing, result[..., EOS])
    return result


def mask_tokens(log_probs: Tensor, ids: Sequence[int]) -> Tensor:
    """Forbid some ids."""
    return log_probs.index_fill(-1, on_device(ids, log_probs.device), -torch.inf)


def on_device(ids: Sequence[int], device: torch.device) -> Tensor:
    """Ids as a tensor; the copy does not wait for the device, as indexing by a list would."""
    return torch.tensor(ids, dtype=torch.long).to(device, non_blocking=True)
