"""How a score grows with the number of training images: a - b n^-c, with intervals.

    python experiments/data_size/curves.py SPLIT_IMAGES FOLDER ... OUTPUT

Reads the tested runs with one view per image below the folders; `data.train_images` is their n, or
SPLIT_IMAGES if they were trained on the whole split. Prints the tables as Markdown and, with at
least four sizes, writes `curves.png` into OUTPUT.

Differences and gains have the intervals of `captioning.metrics.contrasts`. Each seed has its own
subset of the training images, and its smaller subsets are part of the larger ones: runs on subsets
are compared in pairs of one seed. Systems that were trained on the whole split have no subset to
share; they lend one another their variance. Curves need samples of all sizes together: each draws
test images with replacement (the same for all runs) and, for each system and size, adds to the mean
what training adds, Student's t times its standard error, as if no runs shared a subset. The curve
is fitted to each sample: for each exponent of a grid, a and b by least squares with b >= 0, and the
exponent with the smallest error. Beyond the largest size the form of the curve decides more than
the scores do: there are the medians of this form and of a straight line over log n, without an
interval.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from captioning.metrics.contrasts import Difference, Measured, contrast, holm, measure
from captioning.metrics.scorer import Scorer
from captioning.report.comparison import Test
from captioning.report.runs import Run, find_runs

SCORE = "CIDEr"
SAMPLES = 10_000
EXPONENTS = np.geomspace(0.05, 2.0, 40)
PARAMETERS = 3  # of a curve; as few sizes leave nothing to test its form
COCO = 113_287  # training images of the Karpathy split
Array = np.ndarray
Systems = dict[str, dict[int, list[Run]]]  # runs by system and size


@dataclass(frozen=True)
class Curve:
    """A fit to each of S samples: a - b n^-c, arrays `[S]`."""

    a: Array
    b: Array
    c: Array

    def at(self, images: float) -> Array:
        return self.a - self.b * images**-self.c


def fit(sizes: Array, scores: Array) -> Curve:
    """Fit a curve to each row of the scores `[S, K]` of K sizes."""
    best = np.full(len(scores), np.inf)
    a, b, c = (np.zeros(len(scores)) for _ in range(3))
    for exponent in EXPONENTS:
        falling = sizes**-exponent
        deviation = falling - falling.mean()
        slope = np.maximum(0.0, -(scores @ deviation) / (deviation @ deviation))
        level = scores.mean(axis=1) + slope * falling.mean()
        error = ((level[:, None] - slope[:, None] * falling - scores) ** 2).sum(axis=1)
        better = error < best
        best[better], a[better], b[better] = error[better], level[better], slope[better]
        c[better] = exponent
    return Curve(a, b, c)


def interval(values: Array) -> str:
    low, high = np.percentile(values, (2.5, 97.5))
    return f"[{low:.1f}, {high:.1f}]"


def read(folders: list[Path], split_images: int) -> Systems:
    """Runs by system and size, ordered by seed, of the systems that have every size."""
    found: Systems = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        for run in find_runs(folder)[0]:
            if run.recorded.get("init_from") or run.recorded.get("data.views", 1) > 1:
                continue  # a later phase of training; more than these images
            size = run.recorded.get("data.train_images") or split_images
            found[str(run.recorded.get("model.title") or run.model)][size].append(run)
    every = {size for runs in found.values() for size in runs}
    return {
        name: {size: sorted(runs[size], key=lambda run: run.seed) for size in sorted(runs)}
        for name, runs in found.items()
        if set(runs) == every
    }


def cell(found: Difference) -> str:
    """A difference with its interval, if it varies."""
    if found.low is None:
        return f"{found.difference:+.1f}"
    return f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


def compared(
    systems: Sequence[Measured], weights: Sequence[float], lenders: Sequence[Measured] = ()
) -> Difference:
    """A contrast, in pairs if two of its systems were trained on subsets."""
    subsets = [system.pairs for system in systems if system.pairs]
    if len(subsets) > 1 and all(system.runs == len(subsets[0]) for system in systems):
        # runs on the whole split share nothing: any order of theirs will do
        systems = [replace(system, pairs=system.pairs or subsets[0]) for system in systems]
    return contrast(systems, weights, lenders)


def scored(found: Systems, split_images: int) -> dict[str, list[Measured]]:
    """The score of each system at its K sizes; its pairs are the seeds of the subsets."""
    first = next(run for sizes in found.values() for runs in sizes.values() for run in runs)
    references = {record.image_id: record.references for record in first.captions}
    test = Test(references, Scorer(list(references.values()), [SCORE]))
    scores = {}
    for name, sizes in found.items():
        columns = []
        for size, runs in sizes.items():
            records = [{record.image_id: record for record in run.captions} for run in runs]
            statistics = [test.score([run[image] for image in references]) for run in records]
            pairs = [run.seed for run in runs] if size < split_images else []
            columns.append(measure(statistics, pairs=pairs)[SCORE])
        scores[name] = columns
    return scores


def draw_samples(scores: dict[str, list[Measured]]) -> dict[str, Array]:
    """Mean scores `[S, K]` of each system at its K sizes in each sample."""
    random = np.random.default_rng(0)
    images = len(next(iter(scores.values()))[0].images)
    counts = random.multinomial(images, np.full(images, 1 / images), SAMPLES)
    samples = {}
    for name, sizes in scores.items():
        columns = []
        for one in sizes:
            column = counts @ one.images / images
            if one.runs > 1:  # what residuals add is in the images' means
                training = max(one.training - one.residual / images, 0)
                column += (training / one.runs) ** 0.5 * random.standard_t(one.runs - 1, SAMPLES)
            columns.append(column)
        samples[name] = np.stack(columns, axis=1)
    return samples


def table(found: Systems) -> list[str]:
    """Markdown: the means of each system at each size."""
    lines = ["| system | images | seeds | CIDEr | BLEU-4 | validation loss | new captions, % |"]
    lines.append("|---|---|---|---|---|---|---|")
    for system, sizes in found.items():
        for size, runs in sizes.items():
            ciders = [run.scores[SCORE] for run in runs]
            spread = f" ± {np.std(ciders, ddof=1):.1f}" if len(runs) > 1 else ""
            loss = np.mean([min(run.curve("val/nll", "step")[1]) for run in runs])
            bleu, novel = (np.mean([r.scores[key] for r in runs]) for key in ("BLEU-4", "novel"))
            numbers = f"{np.mean(ciders):.1f}{spread} | {bleu:.1f} | {loss:.2f} | {novel:.0f}"
            lines.append(f"| {system} | {size:,} | {len(runs)} | {numbers} |")
    return lines


def gains(scores: dict[str, list[Measured]], samples: dict[str, Array], sizes: Array) -> list[str]:
    """Markdown: what each system gains from the smallest to the largest size and from each size to
    the next, and how often it is the best at each.
    """
    header = " | ".join(f"{size:,.0f} images" for size in sizes)
    steps = " | ".join(f"{one:,.0f} to {other:,.0f}" for one, other in pairwise(sizes))
    lines = [
        f"| system | gain | {steps} | best of the samples, %: {header} |",
        "|---" * (2 * len(sizes) + 1) + "|",
    ]
    best = np.stack(list(samples.values())).argmax(axis=0)
    for number, (system, measured) in enumerate(scores.items()):
        ends = [(measured[0], measured[-1]), *pairwise(measured)]
        cells = [cell(compared(end, (-1, 1))) for end in ends]
        shares = [f"{share:.0f}" for share in 100 * (best == number).mean(axis=0)]
        lines.append(f"| {system} | {' | '.join([*cells, *shares])} |")
    return lines


def predictions(curves: dict[str, Curve], samples: dict[str, Array], sizes: Array) -> list[str]:
    """Markdown: each curve at the largest size, the medians of both forms beyond it, the exponent,
    how often that is the smallest of the grid, and how far the curve is from the scores.
    """
    largest, *places = beyond(sizes)
    header = " | ".join(f"{place:,}: curve, line" for place in places)
    lines = [f"| system | {largest:,} | {header} | c | c the smallest, % | residuals |"]
    lines.append("|---" * (len(places) + 5) + "|")
    for system, curve in curves.items():
        value = curve.at(largest)
        cells = [f"{np.median(value):.1f} {interval(value)}"]
        line = np.polyfit(np.log(sizes), samples[system].T, 1)
        for place in places:
            straight = line[0] * np.log(place) + line[1]
            cells.append(f"{np.median(curve.at(place)):.0f}, {np.median(straight):.0f}")
        low, high = np.percentile(curve.c, (2.5, 97.5))
        smallest = 100 * np.mean(curve.c <= EXPONENTS[0])
        errors = samples[system] - np.stack([curve.at(size) for size in sizes], axis=1)
        middle = np.median(errors, axis=0)
        cells += [f"{low:.2f} to {high:.2f}", f"{smallest:.0f}"]
        cells.append(f"{middle.min():+.1f} to {middle.max():+.1f}")
        lines.append(f"| {system} | {' | '.join(cells)} |")
    return lines


def beyond(sizes: Array) -> list[int]:
    """The largest size, twice as many, and COCO's if that is more."""
    largest = int(sizes.max())
    return [largest, 2 * largest, *([COCO] if 2 * largest < COCO else [])]


def crossings(
    scores: dict[str, list[Measured]], samples: dict[str, Array], sizes: Array
) -> list[str]:
    """Markdown: differences of two systems at each size, and how often they change sign between
    neighbouring sizes.
    """
    header = " | ".join(f"{size:,.0f} images" for size in sizes)
    ways = "change | change in the last step | samples in which the order changes, %"
    lines = [f"| pair | {header} | {ways} |", "|---" * (len(sizes) + 4) + "|"]
    tested: list[tuple[str, float]] = []
    for one, other in combinations(samples, 2):
        difference = samples[one] - samples[other]
        crossed = [
            (difference[:, i] * difference[:, j] < 0) for i, j in pairwise(range(len(sizes)))
        ]
        pairs = list(zip(scores[one], scores[other], strict=True))
        lenders = [list(column) for column in zip(*scores.values(), strict=True)]
        differences = [
            compared(pair, (1, -1), others) for pair, others in zip(pairs, lenders, strict=True)
        ]
        for size, each in zip(sizes, differences, strict=True):
            if each.p is not None:
                tested.append((f"{one} - {other} at {size:,.0f}", each.p))
        cells = [cell(each) for each in differences]
        for before in (pairs[0], pairs[-2]):
            cells.append(cell(compared((*pairs[-1], *before), (1, -1, -1, 1))))
        share = 100 * np.mean(np.any(crossed, axis=0))
        lines.append(f"| {one} - {other} | {' | '.join(cells)} | {share:.0f} |")
    adjusted = holm([p for _, p in tested])
    kept = [f"{name} ({p:.3f})" for (name, _), p in zip(tested, adjusted, strict=True) if p < 0.05]
    found = "; ".join(kept) or "none"
    return [*lines, "", f"p below 0.05 after Holm's correction for {len(tested)}: {found}."]


def draw(curves: dict[str, Curve], found: Systems, sizes: Array, path: Path) -> None:
    """Runs, and curves with their bands to the largest size; beyond, the medians dotted."""
    figure, axes = plt.subplots(figsize=(7.5, 4.8))
    smallest, largest, end = sizes.min(), sizes.max(), beyond(sizes)[-1]
    for number, (system, curve) in enumerate(curves.items()):
        colour = f"C{number}"
        for size, runs in found[system].items():
            axes.plot([size] * len(runs), [r.scores[SCORE] for r in runs], ".", color=colour, ms=7)
        inside, outside = np.geomspace(smallest, largest, 50), np.geomspace(largest, end, 50)
        values = np.stack([curve.at(place) for place in inside])
        low, middle, high = np.percentile(values, (2.5, 50, 97.5), axis=1)
        axes.plot(inside, middle, color=colour, label=system)
        axes.fill_between(inside, low, high, color=colour, alpha=0.15, lw=0)
        extrapolated = [np.median(curve.at(place)) for place in outside]
        axes.plot(outside, extrapolated, ":", color=colour)
    axes.set_xscale("log")
    axes.axvline(largest, color="0.6", lw=0.8)
    axes.text(largest * 1.05, axes.get_ylim()[0] + 1, "extrapolation", color="0.4")
    axes.set_xlabel("training images")
    axes.set_ylabel(f"{SCORE} (x 100)")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(split_images: int, folders: list[Path], output: Path) -> None:
    found = read(folders, split_images)
    if not found:
        sys.exit("no system below the folders has a tested run at every size")
    scores = scored(found, split_images)
    samples = draw_samples(scores)
    sizes = np.array(list(next(iter(found.values()))), float)
    tables = [table(found), crossings(scores, samples, sizes), gains(scores, samples, sizes)]
    if len(sizes) > PARAMETERS:
        curves = {name: fit(sizes, values) for name, values in samples.items()}
        tables.append(predictions(curves, samples, sizes))
        draw(curves, found, sizes, output / "curves.png")
    print("\n\n".join("\n".join(lines) for lines in tables))


if __name__ == "__main__":
    main(int(sys.argv[1]), list(map(Path, sys.argv[2:-1])), Path(sys.argv[-1]))
