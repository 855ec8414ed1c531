"""Three estimates of the variance of training, on the cases with normal deviations.

`python experiments/error_rates/choice.py` writes `choice.csv`: how often, in percent of trials, 0
is outside the 95 % interval of two equal systems, and p below 0.05 / 40. Mean squares are drawn
instead of scores: run means, residuals and images' differences are independent.

    own: the variance of a system's run scores, as `captioning.metrics.contrasts` has it
    floor: the same, but never below what residuals alone give
    split: that of seeds (not negative) and that of residuals apart, each with its freedom
"""

import csv
from itertools import product
from pathlib import Path

import numpy as np
from rates import IMAGES, RATIOS, RUNS, STRICT
from scipy.special import stdtr

HERE = Path(__file__).parent
TRIALS = 40_000
METHODS = ("own", "floor", "split")
Array = np.ndarray


def trials(
    random: np.random.Generator,
    variances: dict[str, float],
    runs: tuple[int, int],
    images: int,
    ratio: int,
) -> dict[str, Array]:
    """The p-values `[TRIALS]` of each method."""
    difference = random.normal(0, np.sqrt(2 * variances["image"] / images), TRIALS)
    residuals = variances["both"] / images
    between = 2 * variances["image"] / images + residuals * sum(1 / number for number in runs)
    of_images = between * random.chisquare(images - 1, TRIALS) / (images - 1)
    parts: dict[str, list[tuple[Array, int]]] = {method: [] for method in METHODS}
    for sign, number in zip((1, -1), runs, strict=True):
        seed = variances["seed"] * (ratio if sign == 1 else 1)
        scores = random.normal(0, np.sqrt(seed + residuals), (number, TRIALS))
        difference += sign * scores.mean(axis=0)
        freedom = (number - 1) * (images - 1)
        rest = residuals * random.chisquare(freedom, TRIALS) / freedom
        of_images = of_images - rest / number
        training = scores.var(axis=0, ddof=1)
        parts["own"].append((training / number, number - 1))
        parts["floor"].append((np.maximum(training, rest) / number, number - 1))
        parts["split"].append((np.maximum(training - rest, 0) / number, number - 1))
        parts["split"].append((rest / number, freedom))
    found = {}
    for method, each in parts.items():
        every = [*each, (np.maximum(of_images, 0), images - 1)]
        variance = sum(part for part, _ in every)
        freedom_of_sum = variance**2 / sum(part**2 / number for part, number in every)
        found[method] = 2 * stdtr(freedom_of_sum, -abs(difference) / np.sqrt(variance))
    return found


def main() -> None:
    with (HERE / "variances.csv").open(newline="", encoding="utf-8") as file:
        cases = {
            row.pop("case"): {name: float(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        }
    random = np.random.default_rng(0)
    with (HERE / "choice.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        heads = [f"{method}{end}" for method in METHODS for end in (" outside", " strict")]
        table.writerow(["case", "images", "runs", "ratio", *heads])
        several = [*(runs for runs in RUNS if min(runs) > 1), (2, 3)]
        for (name, case), images, runs, ratio in product(cases.items(), IMAGES, several, RATIOS):
            row: list[object] = [name, images, f"{runs[0]}+{runs[1]}", ratio]
            for p in trials(random, case, runs, images, ratio).values():
                row += [f"{100 * (p < level).mean():.2f}" for level in (0.05, STRICT)]
            table.writerow(row)


if __name__ == "__main__":
    main()
