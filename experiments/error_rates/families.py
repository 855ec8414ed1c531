"""How often a table of equal systems tells at least one pair apart after Holm's correction.

    python experiments/error_rates/families.py [TRIALS]

Writes `families.csv`, a row for each table: of systems with as many runs each, drawn as in
`rates.py`. Their training variances are equal, or every second one is ten times as large, or they
are those of the recorded systems, in turn. "Before" is the interval of commit 5dec4d50. The tables
of a case have the same images and residuals: what is drawn for 17 systems of five runs serves
smaller ones, and seeds add to all images of a run alike.

S systems, P pairs, T trials, R runs.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from rates import BATCH, HERE, TRIALS, Recorded, read, write
from scipy.special import stdtr

SIZES, RUNS = (3, 6, 10, 17), (2, 3, 5)
CASES = {"Flickr8k": 1000, "100,000 scenes": 400}
"""With the images of their tests."""
PATTERNS = ("equal", "ten times", "recorded")
LEVEL = 0.05
Array = np.ndarray


@dataclass(frozen=True)
class Drawn:
    """What images and residuals give to tables of systems, whatever the seeds add."""

    by_run: Array  # `[S, T, R]`, the means of residuals and of the images' parts
    residual: Array  # `[S, T]`
    of_images: Array  # `[P, T]`, the variance that images give to a difference


def draw(
    random: np.random.Generator, case: Recorded, runs: Array, images: int, heavy: bool
) -> dict[int, Drawn]:
    """A batch for each number of runs."""
    systems, most = max(SIZES), max(RUNS)

    def deviations(pool: Array, *shape: int) -> Array:
        return random.choice(pool, shape) if heavy else random.standard_normal(shape)

    parts = case.variances.image**0.5 * deviations(case.images, systems, BATCH, 1, images)
    rest = case.variances.both**0.5 * deviations(case.residuals, systems, BATCH, most, images)
    drawn = {}
    for number in runs:
        scores = parts + rest[:, :, :number]
        by_image, by_run = scores.mean(2), scores.mean(3)
        left = scores - by_image[:, :, None] - by_run[..., None] + by_run.mean(2)[..., None, None]
        residual = (left**2).sum((2, 3)) / ((number - 1) * (images - 1))
        of_images = []
        for one, other in combinations(range(systems), 2):
            whole = (by_image[one] - by_image[other]).var(1, ddof=1)
            of_images.append(whole - (residual[one] + residual[other]) / number)
        drawn[number] = Drawn(by_run, residual, np.maximum(of_images, 0) / images)
    return drawn


def p_values(by_run: Array, residual: Array, of_images: Array, images: int, old: bool) -> Array:
    """Of all pairs, `[P, T]`, by the variances of `captioning.metrics.contrasts`, or the old ones.

    Args:
        by_run: `[S, T, R]`, the scores of runs.
        residual: `[S, T]`.
        of_images: `[P, T]`.
        images: their number.
        old: as at commit 5dec4d50.
    """
    systems, _, runs = by_run.shape
    mean, variance = by_run.mean(2), by_run.var(2, ddof=1)
    freedom = runs - 1.0
    if not old:
        prior = max(0.0, 1 - 2 / systems)
        variance = (prior * variance.mean(0) + freedom * variance) / (prior + freedom)
        variance, freedom = np.maximum(variance, residual / images), prior + freedom
    one, other = np.array(list(combinations(range(systems), 2))).T
    parts = variance[one] / runs, variance[other] / runs, of_images
    freedoms = freedom, freedom, images - 1
    squares = sum(part**2 / each for part, each in zip(parts, freedoms, strict=True))
    whole = sum(parts)
    return 2 * stdtr(whole**2 / squares, -abs(mean[one] - mean[other]) / np.sqrt(whole))


def factors(case: Recorded) -> dict[str, Array]:
    """By pattern, what each system's training variance is of the mean."""
    systems, recorded = max(SIZES), np.maximum(case.seeds, 0)
    return {
        "equal": np.ones(systems),
        "ten times": np.where(np.arange(systems) % 2, 10.0, 1.0),
        "recorded": np.resize(recorded / recorded.mean(), systems),
    }


def tables(case: Recorded, images: int, heavy: bool, number: int) -> dict[tuple, list[Array]]:
    """The p-values of each table, `[P, T]` in batches, by pattern, runs, systems and `old`."""
    random = np.random.default_rng(heavy)
    found: dict[tuple, list[Array]] = {}
    every, pairs = factors(case), list(combinations(range(max(SIZES)), 2))
    for _ in range(0, number, BATCH):
        for runs, drawn in draw(random, case, RUNS, images, heavy).items():
            seeds = case.variances.seed**0.5 * random.standard_normal(drawn.by_run.shape)
            for (pattern, factor), systems in product(every.items(), SIZES):
                by_run = drawn.by_run + factor[:, None, None] ** 0.5 * seeds
                among = [place for place, pair in enumerate(pairs) if max(pair) < systems]
                for old in (True, False):
                    p = p_values(
                        by_run[:systems],
                        drawn.residual[:systems],
                        drawn.of_images[among],
                        images,
                        old,
                    )
                    found.setdefault((pattern, runs, systems, old), []).append(p)
    return found


def rows(cases: dict[str, Recorded], number: int) -> Iterator[dict[str, object]]:
    for (name, images), heavy in product(CASES.items(), (False, True)):
        found = tables(cases[name], images, heavy, number)
        for runs, systems, pattern in product(RUNS, SIZES, PATTERNS):
            row: dict[str, object] = {
                "case": name,
                "runs": runs,
                "systems": systems,
                "training variances": pattern,
                "residuals": "recorded" if heavy else "normal",
            }
            for column, old in (("before", True), ("now", False)):
                p = np.concatenate(found[pattern, runs, systems, old], axis=1)
                share = (p.min(0) * len(p) < LEVEL).mean()
                row[column] = f"{100 * share:.2f}"
                row[f"{column} error"] = f"{100 * (share * (1 - share) / p.shape[1]) ** 0.5:.2f}"
                row[f"{column} of a pair"] = f"{100 * (p < LEVEL).mean():.2f}"
            print(*row.values(), flush=True)
            yield row


if __name__ == "__main__":
    write(HERE / "families.csv", list(rows(read(), int((sys.argv[1:] or [TRIALS])[0]))))
