"""What a metric returns: scores, and per-image statistics that give those of any set of images.

B images, S numbers per image, K sets of images, M scores of a metric.

BLEU and METEOR of a corpus are computed from sums of counts, error rates are ratios of two sums;
ROUGE-L, CIDEr and SPICE are means of image scores.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NO_PENALTY = " (no brevity penalty)"
PERCENT = 100.0
FEW = 30  # images (D)
IN_GROUP = ": "
"""Between the name of a score and the label of a group."""
SMALL, TINY = 1e-9, 1e-15
"""Added to the denominators and numerators of BLEU, as pycocoevalcap does."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """One metric's numbers per image."""

    names: tuple[str, ...]  # of its M scores
    rows: Array  # `[B, S]`
    formula: Callable[[Array], Array]  # sums of rows `[K, S]` to scores `[K, M]`, 0-1

    def scores(self, counts: Array) -> Array:
        """Score K sets of images, 0-100: counts of each image `[K, B]` to `[K, M]`.

        Example:
            An error rate, M = 1, of B = 2 images with 1 and 3 errors in 4 words each: of both, and
            of the first one twice, as a bootstrap may draw it:

            >>> rows = np.array([[1.0, 4.0], [3.0, 4.0]])
            >>> rate = Statistics(("WER",), rows, lambda sums: sums[:, :1] / sums[:, 1:])
            >>> rate.scores(np.array([[1, 1], [2, 0]])).tolist()
            [[50.0], [25.0]]
        """
        return PERCENT * self.formula(counts @ self.rows)


@dataclass(frozen=True)
class MetricResult:
    """One metric's scores, 0-1, by name: of the corpus, and of each image."""

    corpus: Mapping[str, float]
    per_image: Mapping[str, Sequence[float]]
    statistics: Statistics | None = None  # None: two systems are not compared by it
    # objects that B captions name and that are not there
    hallucinated: Sequence[Sequence[str]] = ()

    @classmethod
    def from_sums(cls, statistics: Statistics) -> "MetricResult":
        """Scores that have a formula for sums over images."""
        rows, formula = statistics.rows, statistics.formula
        corpus = formula(rows.sum(0, keepdims=True))[0].tolist()
        scores = dict(zip(statistics.names, corpus, strict=True))
        per_image = dict(zip(statistics.names, formula(rows).T.tolist(), strict=True))
        # nothing divided by nothing is no score
        known = {name: score for name, score in scores.items() if np.isfinite(score)}
        return cls(known, per_image, statistics)

    @classmethod
    def from_means(cls, per_image: Mapping[str, Sequence[float]]) -> "MetricResult":
        """Scores that are means over images."""
        corpus = {name: float(np.mean(scores)) for name, scores in per_image.items()}
        return cls(corpus, per_image, mean_statistics(per_image))

    @classmethod
    def from_shares(cls, names: Sequence[str], counts: object) -> "MetricResult":
        """Scores that are a sum over images divided by another, from pairs `[B, M, 2]` of both."""
        parts, wholes = np.moveaxis(np.array(counts, float), -1, 0)
        return cls.from_sums(Statistics(tuple(names), np.hstack([parts, wholes]), _share))


def group_label(group: str, images: float) -> str:
    """Name a group, with the number of its images if they are few."""
    number = f"{images:.0f} image{'s' if images > 1 else ''}"
    return group if images >= FEW else f"{group} ({number})"


def mean_statistics(per_image: Mapping[str, Sequence[float]]) -> Statistics:
    """Statistics of scores by name that are means over images."""
    columns = [np.asarray(scores, float) for scores in per_image.values()]
    rows = np.stack([*columns, np.ones_like(columns[0])], axis=1)
    return Statistics(tuple(per_image), rows, _means)


def _means(sums: Array) -> Array:
    return sums[:, :-1] / sums[:, -1:]


def _share(sums: Array) -> Array:
    parts, wholes = np.hsplit(sums, 2)
    return np.divide(parts, wholes, out=np.full_like(parts, np.nan), where=wholes > 0)


def is_constant(references: Sequence[Collection[Hashable]]) -> bool:
    """Return True if CIDEr is 0 for any captions, as all images have the same references and no
    n-gram has a weight.
    """
    return len({frozenset(captions) for captions in references}) == 1
