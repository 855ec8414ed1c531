"""How sure a captioner is of a caption: its score among those of the validation captions.

A score is a log-probability per token: it ranks captions of one search, and says little by itself. Among scores of the
same captioner and search on photographs that it has not been trained on, it says of how many captions it is surer.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

COUNT = 101
"""Quantiles that are kept: percentiles, with the smallest and the largest."""


def quantiles_of(scores: Iterable[float]) -> list[float]:
    """The percentiles of scores, ascending; none where there are no scores, or some are no numbers."""
    every = list(scores)
    if not every or not all(map(math.isfinite, every)):
        return []
    return [float(each) for each in np.quantile(every, np.linspace(0, 1, COUNT))]


def are_quantiles(value: Any) -> bool:
    """Tell whether a value has the form that `quantiles_of` gives."""
    if not isinstance(value, list) or not all(isinstance(each, float) and math.isfinite(each) for each in value):
        return False
    return len(value) in (0, COUNT) and value == sorted(value)


def confidence(score: float, quantiles: Sequence[float]) -> float | None:
    """The share of lower scores, 0 to 1, to a hundredth; None without quantiles."""
    return round(bisect_left(quantiles, score) / len(quantiles), 2) if quantiles else None
