"""How the variance of training was chosen: five estimates, on tables with normal deviations.

`python experiments/error_rates/choice.py` writes `choice.csv`. For each table of equal systems it
has three rates in percent for each estimate, in which a pair counts as told apart if its p is below
0.05: of all pairs ("pair"); of the pairs in which both systems' runs vary less than residuals alone
tell ("agree"); and of tables that tell at least one pair apart after Holm's correction ("family").
Mean squares are drawn instead of scores: run means, residuals and images' differences are
independent.

    own: the variance of a system's run scores
    floor: the same, but never below what residuals alone give
    estimated: moderated as in Smyth 2004, whose prior is estimated from the table, with the floor
    one: moderated by the mean of the table, which counts as one degree of freedom, with the floor
    chosen: the same, as (S - 2) / S degrees of freedom

S systems, P pairs, T trials, R runs.
"""

import csv
from itertools import combinations, product
from pathlib import Path

import numpy as np
from rates import IMAGES, RATIOS
from scipy.special import digamma, polygamma, stdtr

HERE = Path(__file__).parent
TRIALS, FEW, LEVEL = 10_000, 100, 0.05
SIZES, RUNS = (2, 3, 6, 17), (3, 5)
METHODS = ("own", "floor", "estimated", "one", "chosen")
Array = np.ndarray


def estimated_prior(variances: Array, freedom: int) -> tuple[Array, Array]:
    """Degrees of freedom and variance `[T]` of Smyth's prior, by variances `[S, T]`."""
    logs = np.log(np.maximum(variances, 1e-12)) - digamma(freedom / 2) + np.log(freedom / 2)
    mean = logs.mean(0)
    beyond = logs.var(0, ddof=1) - polygamma(1, freedom / 2)
    # the inverse of the trigamma function by Newton's method
    half = 0.5 + 1 / np.maximum(beyond, 1e-6)
    for _ in range(30):
        value = polygamma(1, half)
        half += value * (1 - value / np.maximum(beyond, 1e-6)) / polygamma(2, half)
    prior = np.where(beyond > 1e-6, 2 * half, 1e6)
    return prior, np.exp(mean + digamma(prior / 2) - np.log(prior / 2))


def estimates(variances: Array, floor: Array, freedom: int) -> dict[str, tuple[Array, Array]]:
    """The variance `[S, T]` and its degrees of freedom, by method."""
    systems, mean = len(variances), variances.mean(0)
    prior, center = estimated_prior(variances, freedom)
    priors = {"own": (0.0, mean), "floor": (0.0, mean), "estimated": (prior, center)}
    priors |= {"one": (1.0, mean), "chosen": (max(0.0, 1 - 2 / systems), mean)}
    found = {}
    for method, (weight, towards) in priors.items():
        moderated = (weight * towards + freedom * variances) / (weight + freedom)
        bounded = moderated if method == "own" else np.maximum(moderated, floor)
        found[method] = bounded, np.broadcast_to(weight + freedom, variances.shape)
    return found


def table(
    random: np.random.Generator,
    case: dict[str, float],
    images: int,
    systems: int,
    runs: int,
    ratio: int,
) -> list[object]:
    """The rates of each method."""
    residual, between = case["both"] / images, 2 * case["image"] / images
    seeds = case["seed"] * np.where(np.arange(systems) % 2, ratio, 1)
    deviations = random.standard_normal((systems, runs, TRIALS))
    scores = deviations * np.sqrt(seeds + residual)[:, None, None]
    freedom = (runs - 1) * (images - 1)
    floor = residual * random.chisquare(freedom, (systems, TRIALS)) / freedom
    of_system = random.normal(0, np.sqrt(between / 2), (systems, TRIALS))
    means, variances = scores.mean(1) + of_system, scores.var(1, ddof=1)
    one, other = np.array(list(combinations(range(systems), 2))).T
    agree = (variances[one] < floor[one]) & (variances[other] < floor[other])
    row: list[object] = []
    for variance, each in estimates(variances, floor, runs - 1).values():
        parts = variance / runs
        whole = between + parts[one] + parts[other]
        squares = between**2 / (images - 1)
        squares = squares + parts[one] ** 2 / each[one] + parts[other] ** 2 / each[other]
        p = 2 * stdtr(whole**2 / squares, -abs(means[one] - means[other]) / np.sqrt(whole))
        alike = f"{100 * (p[agree] < LEVEL).mean():.1f}" if agree.sum() >= FEW else ""
        family = (p.min(0) * len(p) < LEVEL).mean()
        row += [f"{100 * (p < LEVEL).mean():.2f}", alike, f"{100 * family:.2f}"]
    return row


def main() -> None:
    with (HERE / "variances.csv").open(newline="", encoding="utf-8") as file:
        cases = {
            row.pop("case"): {name: float(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        }
    random = np.random.default_rng(0)
    with (HERE / "choice.csv").open("w", newline="", encoding="utf-8") as file:
        written = csv.writer(file, lineterminator="\n")
        heads = [f"{method} {rate}" for method in METHODS for rate in ("pair", "agree", "family")]
        written.writerow(["case", "images", "systems", "runs", "ratio", *heads])
        every = product(cases.items(), IMAGES, SIZES, RUNS, RATIOS)
        for (name, case), images, systems, runs, ratio in every:
            row = table(random, case, images, systems, runs, ratio)
            written.writerow([name, images, systems, runs, ratio, *row])


if __name__ == "__main__":
    main()
