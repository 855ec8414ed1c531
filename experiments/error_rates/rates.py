"""How often intervals of equal systems exclude 0, by simulation with recorded variances.

    python experiments/error_rates/rates.py [TRIALS]

Writes `variances.csv`, of recorded runs, and `rates.csv`, a row for each case: `TRIALS` of the
interval of `captioning.metrics.contrasts`, and of that which the project had until commit 5dec4d50,
on the same scores. These are drawn by the model of `captioning.metrics.contrasts`: two systems with
equal means; normal, or with the residuals and the images' parts of recorded runs. The training
variance of the first system may be ten times the second's. A single run borrows from its partner
and from lenders, further systems with three runs each.

"Agree" counts trials in which the runs of both systems vary less than residuals alone tell.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from pathlib import Path

import numpy as np
from scipy.special import stdtr, stdtrit

from captioning.metrics.contrasts import Difference, Measured, contrast
from captioning.report.runs import find_runs
from captioning.report.systems import System, group, newest
from experiments.power import Components, components, scores_of_runs

HERE = Path(__file__).parent
SIZES = {"1,000 scenes": 1000, "3,000 scenes": 3000, "10,000 scenes": 10_000}
SIZES |= {"100,000 scenes": 100_000}
RUNS = ((3, 3), (5, 5), (3, 2), (2, 3), (2, 2))
SINGLE = ((1, 3), (1, 2), (1, 5), (1, 1))
LENDERS, LENT_RUNS = (0, 1, 4, 14), 3  # further systems of the table of a single run
IMAGES = (1000, 400)
RATIOS = (1, 10)  # of the first system's training variance to the second's
TRIALS = 10_000
BATCH = 100  # trials drawn at a time
MEAN = 500.0  # of the drawn scores, which are not 0
STRICT = 0.05 / 40  # a level after a correction for many comparisons
FEW = 100  # trials, of which no share is given
Array = np.ndarray


@dataclass(frozen=True)
class Recorded:
    """The variances of recorded systems, and their deviations, of mean 0 and variance 1."""

    variances: Components
    seeds: Array  # the variance of seeds of each system, which may be estimated below 0
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
    measured = [Measured.from_values(table) for table in tables]
    seeds = [system.training - system.residual / len(system.images) for system in measured]
    deviations = np.concatenate(images), np.concatenate(residuals)
    return Recorded(components(measured), np.array(seeds), *deviations)


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


def lent(random: np.random.Generator, case: Recorded, images: int, number: int) -> list[Measured]:
    """Further systems of a table, with normal deviations; of their images nothing is used."""
    variance = case.variances.seed + case.variances.both / images
    freedom = (LENT_RUNS - 1) * (images - 1)
    return [
        Measured(
            runs=LENT_RUNS,
            score=MEAN,
            images=np.zeros(0),
            values=np.zeros(0),
            training=variance * random.chisquare(LENT_RUNS - 1) / (LENT_RUNS - 1),
            residual=case.variances.both * random.chisquare(freedom) / freedom,
        )
        for _ in range(number)
    ]


def before(one: Measured, other: Measured, lenders: Sequence[Measured]) -> Difference:
    """The interval of commit 5dec4d50: Welch's variances as they are; of a single run, the mean of
    all that have several, as if it were independent of them.
    """
    images = len(one.images)
    several = [system for system in (one, other, *lenders) if system.runs > 1]
    single = [system for system in (one, other) if system.runs == 1]
    parts = [(system.training / system.runs, system.runs - 1) for system in (one, other)]
    parts = [(part, freedom) for part, freedom in parts if freedom]
    residuals = sum(system.residual / system.runs for system in (one, other))
    if single and several:
        squares = sum(system.training**2 / (system.runs - 1) for system in several)
        total = sum(system.training for system in several)
        parts.append((len(single) * total / len(several), total**2 / squares))
        residuals += len(single) * np.mean([system.residual for system in several])
    of_images = (float((one.images - other.images).var(ddof=1)) - residuals) / images
    parts.append((max(of_images, 0.0), images - 1))
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / each for part, each in parts)
    difference = one.score - other.score
    half = float(stdtrit(freedom, 0.975)) * variance**0.5
    p = 2 * float(stdtr(freedom, -abs(difference) / variance**0.5))
    return Difference(one.score, other.score, difference, difference - half, difference + half, p)


def trials(
    number: int,
    case: Recorded,
    runs: tuple[int, int],
    images: int,
    ratio: float = 1,
    heavy: bool = False,
    lenders: int = 0,
    seed: int = 0,
) -> Iterator[tuple[Difference, Difference, bool]]:
    """Differences of two equal systems, now and before, and whether the runs of both agree."""
    random = np.random.default_rng(seed)
    for _ in range(0, number, BATCH):
        for scores in zip(*draw(random, case, runs, images, ratio, heavy), strict=True):
            pair = list(map(Measured.from_values, scores))
            others = lent(random, case, images, lenders)
            agree = all(system.training < system.residual / images for system in pair)
            yield contrast(pair, (1, -1), others), before(*pair, others), agree


def simulate(cases: dict[str, Recorded], number: int) -> Iterator[dict[str, object]]:
    """A row for each case."""
    kinds: list[tuple[tuple[int, int], int, bool]] = [
        *((runs, 0, heavy) for runs, heavy in product(RUNS, (False, True))),
        *(
            (runs, others, False)
            for runs, others in product(SINGLE, LENDERS)
            if max(runs) + others > 1
        ),
    ]
    every = product(cases.items(), IMAGES, kinds, RATIOS)
    for seed, ((name, case), images, (runs, others, heavy), ratio) in enumerate(every):
        found, old, agree = zip(
            *trials(number, case, runs, images, ratio, heavy, others, seed), strict=True
        )
        row: dict[str, object] = {
            "case": name,
            "images": images,
            "runs": f"{runs[0]}+{runs[1]}",
            "lenders": others,
            "ratio": ratio,
            "residuals": "recorded" if heavy else "normal",
            "before outside": f"{100 * np.mean([d.excludes_zero for d in old]):.2f}",
            "before strict": f"{100 * np.mean([(d.p or 1) < STRICT for d in old]):.3f}",
            "outside": f"{100 * np.mean([d.excludes_zero for d in found]):.2f}",
            "strict": f"{100 * np.mean([(d.p or 1) < STRICT for d in found]):.3f}",
            "agree": sum(agree),
        }
        for column, results in (("before agree outside", old), ("agree outside", found)):
            alike = [d.excludes_zero for d, a in zip(results, agree, strict=True) if a]
            row[column] = f"{100 * np.mean(alike):.1f}" if len(alike) >= FEW else ""
        if runs[0] == runs[1] > 1 == ratio:  # as `experiments.power` assumes
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
