"""Paired bootstrap over images, and over the runs of a system, to compare two systems.

B images, R runs of a system, K samples, M scores.

B images are drawn with replacement K times, and both systems are scored on each sample (Koehn,
"Statistical Significance Tests for Machine Translation Evaluation", EMNLP 2004; Efron and
Tibshirani, "An Introduction to the Bootstrap", 1993). A corpus statistic such as BLEU or METEOR is
computed anew from the sample's sums, never averaged over images; CIDEr is a mean over images whose
document frequencies stay those of all B images.

A second training of the same model gives other captions, so each sample of a system of R > 1 runs
has R - 1 of them, drawn with replacement: their mean varies as that of R runs does, where R draws
would give (R - 1) / R of its variance (Rao and Wu, "Resampling Inference with Complex Survey Data",
JASA 1988). What varies with image and run together is counted in both draws: intervals are a little
wide, never narrow (Owen, "The Pigeonhole Bootstrap", 2007).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import SkipValidation

from captioning.config.types import Samples, Seed, validated
from captioning.errors import CaptioningError
from captioning.metrics.statistics import Array, Statistics

LEVEL = 0.95
ZERO = 0.05  # smaller scores, 0-100, are printed as 0.0
BLOCK_NUMBERS = 10_000_000  # counts held at a time, K x B of them: 80 MB


@dataclass(frozen=True)
class Difference:
    """Difference of one score between two systems, times 100, and the interval of the
    difference.
    """

    ours: float
    theirs: float
    difference: float
    low: float  # the 2.5th percentile of the samples
    high: float  # the 97.5th
    p: float  # two-sided, of no difference


@dataclass(frozen=True)
class Resampled:
    """A system's resampled scores, times 100."""

    names: tuple[str, ...]  # of the M scores
    once: Array  # `[M]`, means over the runs
    samples: Array  # `[K, M]`


@validated
def resample(
    runs: Annotated[Sequence[Sequence[Statistics]], SkipValidation],
    samples: Samples = 1000,
    seed: Seed = 0,
    stream: Seed = 0,
) -> Resampled:
    """Score a system on resampled images, the same for every system, and resampled runs.

    Args:
        runs: of each run and metric, `Scores.statistics`, of the same metrics and images in the
        same order. samples: K. seed: of the draws. stream: another one for each system, whose runs
        are drawn independently.
    """
    images = len(runs[0][0].rows)
    if images < 2:
        raise CaptioningError(
            "a bootstrap over one image says nothing: give the captions of more images"
        )
    names = tuple(name for metric in runs[0] for name in metric.names)
    once = np.mean([_scores(run, np.ones((1, images)))[0] for run in runs], axis=0)
    drawn = max(1, len(runs) - 1)
    # [K, R]
    shares = np.concatenate(list(resamples(len(runs), samples, (seed, 1 + stream), drawn))) / drawn
    blocks = [
        np.stack([_scores(run, counts) for run in runs], axis=1)
        for counts in resamples(images, samples, seed)
    ]
    return Resampled(names, once, np.einsum("kr,krm->km", shares, np.concatenate(blocks)))


def difference(ours: Resampled, theirs: Resampled) -> dict[str, Difference]:
    """Compare two systems, resampled as often and with the same seed, score by score."""
    known = [
        {name for name, score in zip(system.names, system.once, strict=True) if np.isfinite(score)}
        for system in (ours, theirs)
    ]
    names = [name for name in ours.names if name in known[0] & known[1]]
    mine, others = ([system.names.index(name) for name in names] for system in (ours, theirs))
    sampled = ours.samples[:, mine] - theirs.samples[:, others]
    return dict(zip(names, between(ours.once[mine], theirs.once[others], sampled), strict=True))


def between(ours: Array, theirs: Array, sampled: Array) -> list[Difference]:
    """Compare M numbers of two systems, `[M]` each, by their resampled differences `[K, M]`.

    A difference is NaN where a sample had no cases. p is NaN where the samples do not differ, or
    only by what the guards of BLEU make of no match. Else the p-value inverts the percentile
    interval: twice the smaller share of samples on one side of 0, those at 0 counted on both; one
    is added to either count (Davison and Hinkley, "Bootstrap Methods and their Application", 1997,
    section 4.2), so that it is never 0.
    """
    low, high = np.nanquantile(sampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    smaller = np.minimum((sampled <= 0).sum(axis=0), (sampled >= 0).sum(axis=0))
    p = np.minimum(2 * (smaller + 1) / (np.isfinite(sampled).sum(axis=0) + 1), 1)
    varies = (low < high) & (np.maximum(ours, theirs) >= ZERO)
    p = np.where(varies, p, np.nan)
    rows = zip(ours, theirs, ours - theirs, low, high, p, strict=True)
    return [Difference(*map(float, row)) for row in rows]


def holm(p: Sequence[float]) -> list[float]:
    """Adjust the p-values of several comparisons, by Holm's step-down correction.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979: the chance of one false
    difference or more among those with an adjusted p below a level is below that level.
    """
    order = np.argsort(p)
    steps = np.asarray(p)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted.tolist()


def resamples(
    items: int, samples: int, seed: int | Sequence[int], drawn: int | None = None
) -> Iterator[Array]:
    """Yield counts of items per sample: blocks `[k, items]`, K rows in all, that sum to `drawn` or
    `items`.
    """
    rng = np.random.default_rng(seed)
    block = max(1, BLOCK_NUMBERS // items)
    for start in range(0, samples, block):
        rows = min(block, samples - start)
        drawings = (
            rng.integers(items, size=(rows, drawn or items)) + items * np.arange(rows)[:, None]
        )
        yield (
            np.bincount(drawings.ravel(), minlength=rows * items)
            .reshape(rows, items)
            .astype(np.float64)
        )


def _scores(metrics: Sequence[Statistics], counts: Array) -> Array:
    """`[K, M]`, the metrics side by side."""
    return np.hstack([metric.scores(counts) for metric in metrics])
