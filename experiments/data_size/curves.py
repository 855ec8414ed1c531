"""How a score grows with the number of training images: a - b n^-c, with intervals.

    python experiments/data_size/curves.py SPLIT_IMAGES FOLDER ... OUTPUT

Reads the tested runs with one view per image below the folders; `data.train_images` is their n, or
SPLIT_IMAGES if they were trained on the whole split. Prints the tables as Markdown and, with at
least four sizes, writes `curves.png` into OUTPUT.

Each bootstrap sample draws test images (the same for all runs) and, for each system and size, all
runs but one with replacement (why: `captioning.metrics.bootstrap`); a run has its own seed and its
own subset of the training images. The curve is fitted to the means of each sample: for each
exponent of a grid, a and b by least squares with b >= 0, and the exponent with the smallest error.
Few sizes determine three parameters badly, so that the intervals are those of whole curves, not of
parameters.
"""

import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from captioning.report.runs import Run, find_runs
from captioning.runs.captions import add_scores

SCORE = "CIDEr"
SAMPLES = 2000
EXPONENTS = np.geomspace(0.05, 2.0, 40)
PARAMETERS = 3  # of a curve; as few sizes leave nothing to test its form
COCO = 113_287  # training images of the Karpathy split
Array = np.ndarray


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


def bootstrap(runs: dict[int, list[Array]], images: Array, generator: np.random.Generator) -> Array:
    """Mean scores `[S, K]` of a system at its K sizes in each sample.

    Args:
        runs: by size, the scores of each run's test images `[n]`.
        images: how often each sample has each test image `[S, n]`.
    """
    columns = []
    for size in sorted(runs):
        scores = images @ np.stack(runs[size], axis=1) / images.sum(axis=1, keepdims=True)
        count = scores.shape[1]
        drawn = generator.integers(count, size=(len(scores), max(1, count - 1)))
        columns.append(np.take_along_axis(scores, drawn, axis=1).mean(axis=1))
    return np.stack(columns, axis=1)


def interval(values: Array) -> str:
    low, high = np.percentile(values, (2.5, 97.5))
    return f"[{low:.1f}, {high:.1f}]"


def image_scores(run: Run, cache: Path) -> dict[str, float]:
    """The score of each test image, times 100."""
    add_scores(run.captions, [SCORE], run.spoken([]), cache)
    return {str(record.image_id): float(record.scores[SCORE] or 0) for record in run.captions}


def read(
    folders: list[Path], split_images: int, cache: Path
) -> tuple[dict[str, dict[int, list[Run]]], dict[str, dict[int, list[Array]]]]:
    """Runs, and scores of their test images in one order, by system and size."""
    found: dict[str, dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
    scores: dict[str, dict[int, list[Array]]] = defaultdict(lambda: defaultdict(list))
    order: list[str] = []
    for folder in folders:
        for run in find_runs(folder)[0]:
            if run.recorded.get("init_from") or run.recorded.get("data.views", 1) > 1:
                continue  # a later phase of training; more than these images
            size = run.recorded.get("data.train_images") or split_images
            by_image = image_scores(run, cache)
            order = order or sorted(by_image)
            system = run.recorded.get("model.title") or run.model
            found[system][size].append(run)
            scores[system][size].append(np.array([by_image[image] for image in order]))
    return found, scores


def table(found: dict[str, dict[int, list[Run]]]) -> list[str]:
    """Markdown: the means of each system at each size."""
    lines = ["| system | images | seeds | CIDEr | BLEU-4 | validation loss | new captions, % |"]
    lines.append("|---|---|---|---|---|---|---|")
    for system, sizes in found.items():
        for size, runs in sorted(sizes.items()):
            ciders = [run.scores[SCORE] for run in runs]
            spread = f" ± {np.std(ciders, ddof=1):.1f}" if len(runs) > 1 else ""
            loss = np.mean([min(run.curve("val/nll", "step")[1]) for run in runs])
            bleu, novel = (np.mean([r.scores[key] for r in runs]) for key in ("BLEU-4", "novel"))
            numbers = f"{np.mean(ciders):.1f}{spread} | {bleu:.1f} | {loss:.2f} | {novel:.0f}"
            lines.append(f"| {system} | {size:,} | {len(runs)} | {numbers} |")
    return lines


def predictions(curves: dict[str, Curve], sizes: Array) -> list[str]:
    """Markdown: what each curve says of twice the largest size, and of COCO."""
    largest = int(sizes.max())
    header = f"| system | {largest:,} | twice as many | {COCO:,}, an extrapolation | c |"
    lines = [header, "|---|---|---|---|---|"]
    for system, curve in curves.items():
        values = [curve.at(size) for size in (largest, 2 * largest, COCO)]
        cells = [f"{np.median(value):.1f} {interval(value)}" for value in values]
        exponents = np.percentile(curve.c, (2.5, 97.5))
        lines.append(
            f"| {system} | {' | '.join(cells)} | {exponents[0]:.2f} to {exponents[1]:.2f} |"
        )
    return lines


def crossings(samples: dict[str, Array], sizes: Array) -> list[str]:
    """Markdown: differences of two systems at each size, and how often they change sign between
    neighbouring sizes.
    """
    header = " | ".join(f"{size:,.0f} images" for size in sizes)
    lines = [f"| pair | {header} | change | samples in which the order changes, % |"]
    lines.append("|---" * (len(sizes) + 3) + "|")
    for one, other in combinations(samples, 2):
        difference = samples[one] - samples[other]
        crossed = [
            (difference[:, i] * difference[:, j] < 0) for i, j in pairwise(range(len(sizes)))
        ]
        change = difference[:, -1] - difference[:, 0]
        cells = [f"{value.mean():+.1f} {interval(value)}" for value in (*difference.T, change)]
        share = 100 * np.mean(np.any(crossed, axis=0))
        lines.append(f"| {one} - {other} | {' | '.join(cells)} | {share:.0f} |")
    return lines


def draw(curves: dict[str, Curve], scores: dict[str, dict[int, list[Array]]], path: Path) -> None:
    """Means, runs and curves with their bands, to the largest size; dotted beyond."""
    figure, axes = plt.subplots(figsize=(7.5, 4.8))
    largest = max(size for sizes in scores.values() for size in sizes)
    smallest = min(size for sizes in scores.values() for size in sizes)
    inside, beyond = np.geomspace(smallest, largest, 50), np.geomspace(largest, COCO, 50)
    for number, (system, curve) in enumerate(curves.items()):
        colour = f"C{number}"
        for size, runs in scores[system].items():
            axes.plot([size] * len(runs), [run.mean() for run in runs], ".", color=colour, ms=7)
        for places, style, alpha in ((inside, "-", 0.15), (beyond, ":", 0.06)):
            values = np.stack([curve.at(place) for place in places])
            low, middle, high = np.percentile(values, (2.5, 50, 97.5), axis=1)
            axes.plot(places, middle, style, color=colour, label=system if style == "-" else None)
            axes.fill_between(places, low, high, color=colour, alpha=alpha, lw=0)
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
    found, scores = read(folders, split_images, output / "cache")
    everywhere = {size for sizes in scores.values() for size in sizes}
    scores = {name: runs for name, runs in scores.items() if set(runs) == everywhere}
    generator = np.random.default_rng(0)
    images = len(next(iter(scores.values()))[min(everywhere)][0])
    drawn = generator.multinomial(images, np.full(images, 1 / images), size=SAMPLES)
    samples = {name: bootstrap(runs, drawn, generator) for name, runs in scores.items()}
    sizes = np.array(sorted(everywhere), float)
    tables = [table({name: found[name] for name in scores}), crossings(samples, sizes)]
    if len(sizes) > PARAMETERS:
        curves = {name: fit(sizes, values) for name, values in samples.items()}
        tables.append(predictions(curves, sizes))
        draw(curves, scores, output / "curves.png")
    print("\n\n".join("\n".join(lines) for lines in tables))


if __name__ == "__main__":
    main(int(sys.argv[1]), list(map(Path, sys.argv[2:-1])), Path(sys.argv[-1]))
