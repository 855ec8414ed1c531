"""Is one set of captions better than another? The paired bootstrap over images.

B images, K samples, S numbers per image and metric, M scores.

B images are drawn with replacement K times, and both systems are scored on each sample (Koehn, "Statistical
Significance Tests for Machine Translation Evaluation", EMNLP 2004; Efron and Tibshirani, "An Introduction to the
Bootstrap", 1993). A corpus statistic such as BLEU or METEOR is computed anew from the sample's sums
(`captioning.metrics.statistics`), never averaged over images. CIDEr is a mean over images whose document frequencies
stay those of all B images, so that an image's score does not change with the sample it is drawn into.

What varies is the choice of images. That a second training of the same model gives other captions is not in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from captioning.borders.bounds import Samples, Seed, bounded
from captioning.errors import CaptioningError
from captioning.metrics.statistics import Array, Statistics

LEVEL = 0.95
BLOCK_NUMBERS = 10_000_000
"""Counts held at a time, K x B of them: 80 MB."""


@dataclass(frozen=True)
class Difference:
    """What one score of two sets of captions differs by, on the scale of papers.

    Attributes:
        ours: score of the one.
        theirs: score of the other.
        difference: ours - theirs.
        low: lower end of the interval of the difference, the 2.5th percentile of the samples.
        high: upper end, the 97.5th percentile.
        p: two-sided p-value of no difference.
    """

    ours: float
    theirs: float
    difference: float
    low: float
    high: float
    p: float


@bounded
def paired_bootstrap(
    ours: Sequence[Statistics],
    theirs: Sequence[Statistics],
    samples: Samples = 1000,
    seed: Seed = 0,
) -> dict[str, Difference]:
    """Compares two sets of captions of the same images, score by score.

    The p-value inverts the percentile interval: twice the smaller share of samples on one side of 0, those at 0 counted
    on both; one is added to either count (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section
    4.2), so that it is never 0.

    Args:
        ours: of each metric, `Scores.statistics` of the one set.
        theirs: of the same metrics and images in the same order.
        samples: K, at least 1.
        seed: of the draws; equal seeds, equal samples.

    Raises:
        CaptioningError: there is one image only.
        ValueError: a number that is not allowed.
    """
    images = len(ours[0].rows)
    if images < 2:
        raise CaptioningError("a bootstrap over one image says nothing: give the captions of more images")
    names = [name for metric in ours for name in metric.names]
    once = np.ones((1, images))
    ours_once, theirs_once = _scores(ours, once)[0], _scores(theirs, once)[0]
    sampled = np.concatenate(
        [_scores(ours, counts) - _scores(theirs, counts) for counts in resamples(images, samples, seed)]
    )  # [K, M]
    low, high = np.quantile(sampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    smaller = np.minimum((sampled <= 0).sum(axis=0), (sampled >= 0).sum(axis=0))
    p = np.minimum(2 * (smaller + 1) / (samples + 1), 1)
    columns = (ours_once, theirs_once, ours_once - theirs_once, low, high, p)
    return {name: Difference(*map(float, row)) for name, row in zip(names, zip(*columns, strict=True), strict=True)}


def resamples(images: int, samples: int, seed: int) -> Iterator[Array]:
    """How often each image is in each sample: blocks of rows `[k, B]` that sum to B, K rows in all."""
    rng = np.random.default_rng(seed)
    block = max(1, BLOCK_NUMBERS // images)
    for start in range(0, samples, block):
        rows = min(block, samples - start)
        drawn = rng.integers(images, size=(rows, images)) + images * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * images).reshape(rows, images).astype(np.float64)


def _scores(metrics: Sequence[Statistics], counts: Array) -> Array:
    """`[K, M]`, the metrics side by side."""
    return np.hstack([metric.scores(counts) for metric in metrics])
