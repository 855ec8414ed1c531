"""How small a difference between two systems a comparison can find, and what a smaller one needs.

S runs (seeds) of each system, n test images, y_sri the score of run r of system s on image i:
y_sri = mu_s + a_i + b_si + r_sr + e_sri, where all but mu_s are random with mean 0. The difference
of two systems' means then has the variance

    2 var(b) / n + 2 (var(r) + var(e) / n) / S,

whose components are estimated by analysis of variance (Searle, Casella, McCulloch, "Variance
Components", 1992). A two-sided t-test of two systems at 5 % finds a difference of t_0.975 + t_0.8
standard errors with a probability of nearly 80 %; its degrees of freedom are Satterthwaite's
(Biometrics Bulletin 1946).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from captioning.metrics.statistics import Array
from captioning.metrics.table import HEADLINE
from captioning.report.systems import System

MOST = 1_000_000  # seeds or images: more is no answer
MORE_IMAGES = 10  # times those of the test, where neither seeds nor images do alone


@dataclass(frozen=True, slots=True)
class Components:
    """Variances of the score of a system, pooled over systems; see the module."""

    seed: float  # var(r)
    image: float  # var(b)
    both: float  # var(e)

    def detectable(self, seeds: int, images: int) -> float:
        """The difference that is found with a probability of 80 %, from 2 seeds and 2 images."""
        by_seed = 2 * (self.seed + self.both / images) / seeds
        by_image = 2 * self.image / images
        variance = by_seed + by_image
        if variance == 0:
            return 0.0
        freedom = variance**2 / (by_seed**2 / (2 * (seeds - 1)) + by_image**2 / (images - 1))
        quantiles = student_quantile(0.975, freedom) + student_quantile(0.8, freedom)
        return quantiles * math.sqrt(variance)

    def seeds_for(self, difference: float, images: int) -> int | None:
        """The fewest seeds of each system that find a difference; None if none do."""
        return _fewest(lambda seeds: self.detectable(seeds, images) <= difference)

    def images_for(self, difference: float, seeds: int) -> int | None:
        """The fewest test images that find a difference; None if none do."""
        return _fewest(lambda images: self.detectable(seeds, images) <= difference)


def components(systems: Sequence[Array]) -> Components:
    """Estimate the components from the scores `[S, n]` of at least two systems, S and n from 2."""
    seed, both = [], []
    for scores in systems:
        runs, images = scores.shape
        by_run = scores.mean(axis=1)
        residual = scores - scores.mean(axis=0) - by_run[:, None] + by_run.mean()
        error = float((residual**2).sum()) / ((runs - 1) * (images - 1))
        both.append(error)
        seed.append(float(by_run.var(ddof=1)) - error / images)
    # of the mean of a system's runs on an image, var(b) + var(e) / S remains in a difference
    image = [
        (float((one.mean(axis=0) - other.mean(axis=0)).var(ddof=1)) - e / len(one) - f / len(other))
        / 2
        for (one, e), (other, f) in combinations(zip(systems, both, strict=True), 2)
    ]
    means = (max(float(np.mean(values)), 0.0) for values in (seed, image, both))
    return Components(*means)


def student_quantile(share: float, freedom: float) -> float:
    """Quantile of Student's t, to 1 % from 3 degrees of freedom on (Abramowitz, Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(share)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """The smallest number from 2 to `MOST` that is enough, as all larger ones are."""
    numbers = range(2, MOST + 1)
    first = bisect_left(numbers, True, key=enough)
    return numbers[first] if first < len(numbers) else None


def power_sentence(systems: Sequence[System], difference: float) -> str:
    """Markdown: what the runs of a table can tell apart by `HEADLINE`, and what it takes to tell
    `difference`; empty if fewer than two systems have two runs each on the same images.
    """
    scores = [table for system in systems if (table := _scores(system)) is not None]
    if len(scores) < 2 or len({table.shape[1] for table in scores}) > 1:
        return ""
    seeds, images = min(map(len, scores)), scores[0].shape[1]
    variances = components(scores)
    more_seeds = variances.seeds_for(difference, images)
    more_images = variances.images_for(difference, seeds)
    needs = [
        f"{more_seeds:,} seeds each on {images:,} images" if more_seeds else "",
        f"{more_images:,} images with {seeds} seeds each" if more_images else "",
    ]
    if not any(needs):  # the other half of the variance remains: some of both
        many = MORE_IMAGES * images
        more_seeds = variances.seeds_for(difference, many)
        needs = [f"{more_seeds:,} seeds each on {many:,} images" if more_seeds else "more of both"]
    needed = " or ".join(filter(None, needs))
    return (
        f"\nWith {seeds} seeds and {images:,} test images, a difference of "
        f"{variances.detectable(seeds, images):.1f} {HEADLINE} between two systems is found with a "
        f"probability of 80 % (one two-sided test at 5 %; variances of {len(scores)} systems). "
        f"To find a difference of {difference:g}, two systems need {needed}.\n"
    )


def _scores(system: System) -> Array | None:
    """`[S, n]`, times 100, in the order of image ids; None unless every run has every score."""
    if len(system.runs) < 2 or not system.fully_tested:
        return None
    rows = []
    for run in system.runs:
        records = sorted(run.captions, key=lambda record: str(record.image_id))
        rows.append([record.scores.get(HEADLINE) for record in records])
    if any(None in row for row in rows) or len({*map(len, rows)}) > 1:
        return None
    return np.array(rows, float)
