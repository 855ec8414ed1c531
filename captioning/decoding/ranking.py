"""Sizes of a beam that go together, the score by which it ranks captions, and its confidence.

`experiments/onnx` copies this module beside its graphs, so that it imports the standard
library alone.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

NORMALISATIONS: Mapping[str, Callable[[int], float]] = {
    "length": float,
    "gnmt": lambda length: (5 + length) / 6,  # Wu et al. 2016, Eq. 14
}
"""Lengths of a caption by its number of tokens; their power divides its log-probability."""


def check_limits(width: int = 1, groups: int = 1, n_best: int = 1) -> None:
    """Raise ValueError for inconsistent sizes of a beam."""
    if n_best > width:
        raise ValueError(
            f"n_best={n_best} is not allowed; a beam of width={width} finds no more than that"
        )
    if width % groups:
        raise ValueError(f"width={width} is not allowed; it must be a multiple of groups={groups}")


def confidence(score: float, quantiles: Sequence[float]) -> float | None:
    """Share of lower validation scores, 0 to 1, rounded to 0.01; None without quantiles."""
    return round(bisect_left(quantiles, score) / len(quantiles), 2) if quantiles else None


@dataclass(frozen=True)
class Ranking:
    """How captions of one image are ranked, and when their search ends."""

    max_length: int
    length_penalty: float
    normalisation: str
    n_best: int
    early_stopping: bool

    def divisor(self, length: int) -> float:
        """Divide the log-probability of `length` tokens, EOS included, by this."""
        return NORMALISATIONS[self.normalisation](length) ** self.length_penalty

    def divisors_to_come(self, length: int) -> tuple[float, float]:
        """Divisors of the extreme lengths that a hypothesis of `length` tokens may still reach: if
        it loses nothing more, its score is at most the larger of the two quotients.
        """
        return self.divisor(length + 1), self.divisor(self.max_length)
