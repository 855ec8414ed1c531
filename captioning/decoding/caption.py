"""Generated captions, and what every search builds them from: log-probabilities and back-pointers.

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
        attention: `[T, L]` on the CPU, the map of the step that predicted each token; None for models without
            attention.
        alternatives: further captions of the image, best first; these have no alternatives of their own.
        attended: `[T, L]`, the location that hard attention took at each step; None if it took the expected context.
        entropy: in nats, of the distribution that each token was chosen from, if measured
            (`captioning.decoding.confidence.with_entropy`).
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


@dataclass(slots=True)
class Trace:
    """Back-pointers of a search, one entry per step; captions are read at the end, so that no step copies them.

    Attributes:
        tokens: `[B, N]`, the token that each hypothesis chose.
        parents: `[B, N]`, the hypothesis of the previous step that it extends.
        maps: of `[B, N, L]`, those of each hypothesis before its choice (`Step.maps`).
    """

    tokens: list[Tensor] = field(default_factory=list)
    parents: list[Tensor] = field(default_factory=list)
    maps: list[tuple[Tensor, ...]] = field(default_factory=list)

    def add(self, tokens: Tensor, parents: Tensor, maps: tuple[Tensor, ...]) -> None:
        self.tokens.append(tokens)
        self.parents.append(parents)
        self.maps.append(maps)

    def cpu(self) -> "Trace":
        """A copy to read from."""
        tokens, parents = ([x.cpu() for x in xs] for xs in (self.tokens, self.parents))
        return Trace(tokens, parents, [tuple(x.cpu() for x in maps) for maps in self.maps])

    def read(self, b: int, row: int, steps: int, last: int | None) -> tuple[list[int], list[Tensor]]:
        """Tokens of image `b` that end at `row` after `steps` steps, then `last` if given, and their maps `[T, L]`."""
        tokens = [] if last is None else [last]
        rows = [] if last is None else [row]
        for t in reversed(range(steps)):
            tokens.append(int(self.tokens[t][b, row]))
            row = int(self.parents[t][b, row])
            rows.append(row)
        maps = [[x[b, row] for x in self.maps[t]] for t, row in enumerate(reversed(rows))]
        return tokens[::-1], [torch.stack(each) for each in zip(*maps, strict=True)]
