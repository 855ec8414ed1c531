"""How often intervals of equal systems exclude 0, by simulation with recorded variances.

    python experiments/error_rates/rates.py [TRIALS]

Writes `variances.csv`, of recorded runs, and `rates.csv`, a row for each case; `TRIALS` of the
interval of `captioning.metrics.contrasts` and 4,000 of the percentile bootstrap that the project
had until commit 5929b342. Scores are drawn by the model of `captioning.metrics.contrasts`: two
systems with equal means; normal, or with the residuals and the images' parts of recorded runs. The
training variance of the first system may be ten times the second's.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from pathlib import Path

import numpy as np

from captioning.metrics.contrasts import Difference, Measured, contrast
from captioning.report.power import Components, components, scores_of_runs
from captioning.report.runs import find_runs
from captioning.report.systems import System, group, newest

HERE = Path(__file__).parent
SIZES = {"1,000 scenes": 1000, "3,000 scenes": 3000, "10,000 scenes": 10_000}
SIZES |= {"100,000 scenes": 100_000}
RUNS = ((3, 3), (5, 5), (3, 2), (2, 2), (1, 1))
IMAGES = (1000, 400)
RATIOS = (1, 10)  # of the first system's training variance to the second's
TRIALS, OLD_TRIALS = 10_000, 4000
BATCH = 100  # trials drawn at a time
SAMPLES = 1600  # of the bootstrap; the smallest p is 2 / 1,601
LENDERS, LENT_RUNS = 4, 3  # other systems of a table of systems with one run
MEAN = 500.0  # of the drawn scores, which are not 0
STRICT = 0.05 / 40  # a level after a correction for many comparisons
Array = np.ndarray


@dataclass(frozen=True)
class Recorded:
    """The variances of recorded systems, and their deviations, of mean 0 and variance 1."""

    variances: Components
    images: Array  # halves of differences between two systems' images
    residuals: Array


def read(cache: Path = Path("cache")) -> dict[str, Recorded]:
    """The cases by name: the systems of `zoo_flickr8k`, and those with attention of
    `data_size_shapes` at each size.
    """
    cases = {"Flickr8k": _systems(HERE.parent / "zoo_flickr8k", cache)}
    scenes = _systems(HERE.parent / "data_size_shapes", cache)
    for name, size in SIZES.items():
        cases[name] = [
            system
            for system in scenes
            if system.runs[0].recorded["data.train_images"] == size
            and not system.runs[0].model.startswith("show_tell")
        ]
    return {name: recorded(systems) for name, systems in cases.items()}


def _systems(folder: Path, cache: Path) -> list[System]:
    runs, _ = newest(find_runs(folder)[0])
    for run in runs:
        run.add_scores(cache, [])
    return [system for system in group(runs) if len(system.runs) > 1]


def recorded(systems: Sequence[System]) -> Recorded:
    tables = [table for system in systems if (table := scores_of_runs(system)) is not None]
    residuals = []
    for table in tables:
        rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
        residuals.append(rest.ravel() / rest.std())
    images = []
    for one, other in combinations(tables, 2):
        gap = one.mean(axis=0) - other.mean(axis=0)
        gap -= gap.mean()
        images += [gap / gap.std(), -gap / gap.std()]
    variances = components([Measured.from_values(table) for table in tables])
    return Recorded(variances, np.concatenate(images), np.concatenate(residuals))


def draw(
    random: np.random.Generator,
    case: Recorded,
    runs: Sequence[int],
    images: int,
    ratio: float = 1,
    heavy: bool = False,
) -> list[Array]:
    """`BATCH` trials of each system's scores, `[BATCH, R, images]`; heavy tails are recorded."""

    def deviations(pool: Array, *shape: int) -> Array:
        return random.choice(pool, shape) if heavy else random.standard_normal(shape)

    variances, systems = case.variances, []
    for place, number in enumerate(runs):
        seed = variances.seed * (1 if place else ratio)
        systems.append(
            MEAN
            + variances.image**0.5 * deviations(case.images, BATCH, 1, images)
            + seed**0.5 * random.standard_normal((BATCH, number, 1))
            + variances.both**0.5 * deviations(case.residuals, BATCH, number, images)
        )
    return systems


def trials(
    number: int,
    case: Recorded,
    runs: tuple[int, int],
    images: int,
    ratio: float = 1,
    heavy: bool = False,
    seed: int = 0,
) -> Iterator[Difference]:
    """Differences of two equal systems; those of one run each borrow from `LENDERS`."""
    random = np.random.default_rng(seed)
    every = (*runs, *((LENT_RUNS,) * LENDERS if runs == (1, 1) else ()))
    for _ in range(0, number, BATCH):
        for scores in zip(*draw(random, case, every, images, ratio, heavy), strict=True):
            first, second, *lenders = map(Measured.from_values, scores)
            yield contrast((first, second), (1, -1), lenders)


def percentiles(
    number: int,
    case: Recorded,
    runs: tuple[int, int],
    images: int,
    ratio: float = 1,
    heavy: bool = False,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Whether 0 is outside the interval, and p, of the percentile bootstrap of commit
    5929b342, `[number]` each.

    As there, all comparisons have the same samples.
    """
    random = np.random.default_rng(seed)
    counts = resamples(images, 0, images)
    shares = [
        resamples(each, (0, 1 + stream), max(1, each - 1)) / max(1, each - 1)
        for stream, each in enumerate(runs)
    ]
    outside, ps = [], []
    for _ in range(0, number, BATCH):
        sampled = np.zeros((SAMPLES, BATCH), np.float32)
        for sign, share, scores in zip(
            (1, -1), shares, draw(random, case, runs, images, ratio, heavy), strict=True
        ):
            by_run = counts @ (scores - MEAN).reshape(-1, images).T.astype(np.float32) / images
            by_run = by_run.reshape(SAMPLES, BATCH, -1)
            sampled += sign * np.einsum("kr,kbr->kb", share, by_run)
        low, high = np.quantile(sampled, (0.025, 0.975), axis=0)
        smaller = np.minimum((sampled <= 0).sum(axis=0), (sampled >= 0).sum(axis=0))
        outside.append((low > 0) | (high < 0))
        ps.append(np.minimum(2 * (smaller + 1) / (SAMPLES + 1), 1))
    return np.concatenate(outside), np.concatenate(ps)


def resamples(items: int, seed: int | tuple[int, int], drawn: int) -> Array:
    """How often each item is in each sample, `[SAMPLES, items]`."""
    drawings = np.random.default_rng(seed).integers(items, size=(SAMPLES, drawn))
    places = drawings + items * np.arange(SAMPLES)[:, None]
    counts = np.bincount(places.ravel(), minlength=SAMPLES * items)
    return counts.reshape(SAMPLES, items).astype(np.float32)


def simulate(cases: dict[str, Recorded], number: int) -> Iterator[dict[str, object]]:
    """A row for each case."""
    every = product(cases.items(), IMAGES, RUNS, RATIOS, (False, True))
    for seed, ((name, case), images, runs, ratio, heavy) in enumerate(every):
        found = list(trials(number, case, runs, images, ratio, heavy, seed))
        outside, p = percentiles(OLD_TRIALS, case, runs, images, ratio, heavy, seed)
        row: dict[str, object] = {
            "case": name,
            "images": images,
            "runs": f"{runs[0]}+{runs[1]}",
            "ratio": ratio,
            "residuals": "recorded" if heavy else "normal",
            "before outside": f"{100 * outside.mean():.2f}",
            "before strict": f"{100 * (p < STRICT).mean():.3f}",
            "outside": f"{100 * np.mean([d.excludes_zero for d in found]):.2f}",
            "strict": f"{100 * np.mean([(d.p or 1) < STRICT for d in found]):.3f}",
        }
        if runs[0] == runs[1] > 1 == ratio:  # as `power=` assumes
            halves = np.array([((d.high or 0) - (d.low or 0)) / 2 for d in found])
            observed = np.array([d.difference for d in found])
            for column, probability in (("detectable", 0.8), ("just", 0.5)):
                size = case.variances.detectable(runs[0], images, probability)
                row[column] = f"{size:.2f}"
                row[f"{column} found"] = f"{100 * (abs(observed + size) > halves).mean():.1f}"
        print(*row.values(), flush=True)
        yield row


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    columns = max(map(list, rows), key=len)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def main(number: int) -> None:
    cases = read()
    variances: list[dict[str, object]] = []
    for name, case in cases.items():
        rounded = {key: f"{value:.3f}" for key, value in asdict(case.variances).items()}
        variances.append({"case": name, **rounded})
    write(HERE / "variances.csv", variances)
    write(HERE / "rates.csv", list(simulate(cases, number)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS)
