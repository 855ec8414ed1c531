"""How small a difference between two systems a comparison can find, and what a smaller one needs.

    python -m experiments.power RUNS [DIFFERENCE] [CACHE]

Prints it for each data set of the tested runs below a folder: the difference that their seeds and
images can detect, and the seeds and images that `DIFFERENCE` (1 CIDEr) needs.

S runs (seeds) of each system, n test images. With the components of `captioning.metrics.contrasts`
the difference of two systems' means has the variance

    2 var(b) / n + 2 (var(r) + var(e) / n) / S.

The interval of a comparison does not know it: its width varies with each system's variance over S
runs, which is chi-squared, and so do its degrees of freedom. The probability that it excludes 0 is
the mean over the quantiles of both variances.
"""

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, stdtrit

from captioning.metrics.contrasts import LEVEL, Measured
from captioning.metrics.statistics import Array
from captioning.metrics.table import HEADLINE
from captioning.report.__main__ import by_data
from captioning.report.runs import find_runs
from captioning.report.systems import System, group, newest
from captioning.runs.evaluation.captions import add_scores

MOST = 1_000_000  # seeds or images: more is no answer
MORE_IMAGES = 10  # times those of the test, where neither seeds nor images do alone
# probabilities: of finding a detectable difference, and one that is as large as the usual interval
FOUND, JUST = 0.8, 0.5
QUANTILES = 64  # of a variance over runs


@dataclass(frozen=True)
class Components:
    """Variances of the score of a system, pooled over systems; see the module."""

    seed: float  # var(r)
    image: float  # var(b)
    both: float  # var(e)

    def power(self, seeds: int, images: int) -> Callable[[float], float]:
        """The probability that the interval excludes 0, by the difference, for at least 2 seeds and
        2 images.
        """
        by_seed = (self.seed + self.both / images) / seeds
        by_image = 2 * self.image / images
        error = math.sqrt(2 * by_seed + by_image)
        if error == 0:
            return lambda difference: float(difference > 0)
        beyond = (np.arange(QUANTILES) + 0.5) / QUANTILES
        one = by_seed * chdtri(seeds - 1, beyond) / (seeds - 1)
        one = np.maximum(one, self.both / images / seeds)  # as contrasts of two systems have it
        other = one[:, None]
        estimated = one + other + by_image
        inverse = (one**2 + other**2) / (seeds - 1) + by_image**2 / (images - 1)
        half = stdtrit(estimated**2 / inverse, (1 + LEVEL) / 2) * np.sqrt(estimated)

        def found(difference: float) -> float:
            above, below = (difference - half) / error, (-difference - half) / error
            return float((ndtr(above) + ndtr(below)).mean())

        return found

    def detectable(self, seeds: int, images: int, probability: float = FOUND) -> float:
        """The difference that is found with a probability, from 2 seeds and 2 images."""
        power = self.power(seeds, images)
        return float(brentq(lambda difference: power(difference) - probability, 0, MOST))

    def seeds_for(self, difference: float, images: int) -> int | None:
        """The fewest seeds of each system that find a difference; None if none do."""
        return _fewest(lambda seeds: self.power(seeds, images)(difference) >= FOUND)

    def images_for(self, difference: float, seeds: int) -> int | None:
        """The fewest test images that find a difference; None if none do."""
        return _fewest(lambda images: self.power(seeds, images)(difference) >= FOUND)


def components(systems: Sequence[Measured]) -> Components:
    """Estimate the components from at least two systems of several runs on the same images."""
    images = len(systems[0].images)
    seed = [system.training - system.residual / images for system in systems]
    # of the mean of a system's runs on an image, var(b) + var(e) / S remains in a difference
    image = [
        (
            float((one.images - other.images).var(ddof=1))
            - one.residual / one.runs
            - other.residual / other.runs
        )
        / 2
        for one, other in combinations(systems, 2)
    ]
    both = [system.residual for system in systems]
    return Components(*(max(float(np.mean(values)), 0.0) for values in (seed, image, both)))


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """The smallest number from 2 to `MOST` that is enough, as all larger ones are."""
    first = bisect_left(range(MOST + 1), True, lo=2, key=enough)
    return first if first <= MOST else None


def power_sentence(systems: Sequence[System], difference: float) -> str:
    """What the runs of a table can tell apart by `HEADLINE`, and what it takes to tell
    `difference`. Empty if fewer than two systems have two runs each on the same images.
    """
    tables = [table for table in map(scores_of_runs, systems) if table is not None]
    if len(tables) < 2 or len({table.shape[1] for table in tables}) > 1:
        return ""
    seeds, images = min(map(len, tables)), tables[0].shape[1]
    variances = components([Measured.from_values(table) for table in tables])
    more_seeds = variances.seeds_for(difference, images)
    more_images = variances.images_for(difference, seeds)
    needs = []
    if more_seeds:
        needs.append(f"{more_seeds:,} seeds each on {images:,} images")
    if more_images:
        needs.append(f"{more_images:,} images with {seeds} seeds each")
    if not needs:  # the other half of the variance remains: some of both
        many = MORE_IMAGES * images
        more_seeds = variances.seeds_for(difference, many)
        needs = [f"{more_seeds:,} seeds each on {many:,} images" if more_seeds else "more of both"]
    needed = " or ".join(needs)
    just = variances.detectable(seeds, images, JUST)
    return (
        f"With {seeds} seeds and {images:,} test images, a difference of "
        f"{variances.detectable(seeds, images):.1f} {HEADLINE} between two systems is detectable: "
        "the 95 % interval of one comparison excludes 0 with a probability of 80 %. An observed "
        f"difference of about {just:.1f} is just significant (variances of {len(tables)} systems). "
        f"To detect a difference of {difference:g}, two systems need {needed}."
    )


def scores_of_runs(system: System) -> Array | None:
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


def main(folder: str, difference: str = "1", cache: str = "cache") -> None:
    runs, _ = newest(find_runs(Path(folder))[0])
    for run in runs:
        add_scores(run.captions, [HEADLINE], run.spoken([]), Path(cache))
    for title, members in by_data(runs).items():
        sentence = power_sentence(group(members), float(difference))
        print(f"{title}: {sentence or 'no two systems have two runs each on the same images'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
