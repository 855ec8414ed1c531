"""Variance components of a score: features, architecture, both together, seed.

    python experiments/architecture_or_features/components.py scores.csv SCORE

F feature sets, A architectures, n seeds of each pair. Mean squares of the two-way crossed design
with random effects (Searle, Casella, McCulloch, "Variance Components", 1992, section 4.3) are
solved for the variances; a negative solution is 0. With one feature set the design has one factor.
Every combination of feature sets is tried, with the architectures that have at least two runs on
each.
"""

import csv
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

Runs = dict[tuple[str, str], dict[int, float]]


def balanced(runs: Runs, features: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """The architectures with two runs or more behind each of these features, and as many scores of
    each `[F, A, n]`.
    """
    named = sorted({model for _, model in runs})
    models = [
        model for model in named if all(len(runs.get((each, model), ())) > 1 for each in features)
    ]
    least = min((len(runs[each, model]) for each in features for model in models), default=0)
    return models, np.array(
        [[sorted(runs[each, model].items())[:least] for model in models] for each in features]
    )


def mean_squares(scores: np.ndarray) -> dict[str, tuple[float, int]]:
    """Sums of squares of scores `[F, A, n]` with their degrees of freedom."""
    f, a, n = scores.shape
    cells, of_features, of_models = scores.mean(2), scores.mean((1, 2)), scores.mean((0, 2))
    both = cells - of_features[:, None] - of_models + scores.mean()
    sums = {
        "features": (n * a * ((of_features - scores.mean()) ** 2).sum(), f - 1),
        "architecture": (n * f * ((of_models - scores.mean()) ** 2).sum(), a - 1),
        "both together": (n * (both**2).sum(), (f - 1) * (a - 1)),
        "seed": (((scores - cells[..., None]) ** 2).sum(), f * a * (n - 1)),
    }
    return {name: found for name, found in sums.items() if found[1]}


def components(squares: dict[str, Any], f: int, a: int, n: int) -> dict[str, Any]:
    """Variances from mean squares (numbers, or arrays of draws)."""
    found = {"seed": squares["seed"]}
    if f == 1:
        found["architecture"] = (squares["architecture"] - squares["seed"]) / n
    else:
        found["both together"] = (squares["both together"] - squares["seed"]) / n
        found["features"] = (squares["features"] - squares["both together"]) / (n * a)
        found["architecture"] = (squares["architecture"] - squares["both together"]) / (n * f)
    return {name: np.maximum(variance, 0.0) for name, variance in found.items()}


def shares(
    scores: np.ndarray, draws: int = 100_000
) -> list[tuple[str, float, float, float, float]]:
    """Each component's standard deviation and its share of the variance, with the share's 95 %
    interval.

    The interval is that of generalised pivots (Weerahandi, "Generalized Confidence Intervals",
    1993): every mean square is replaced by its sum of squares over a draw of chi-squared with its
    degrees of freedom.
    """
    random = np.random.default_rng(0)
    sums = mean_squares(scores)
    found = components({name: total / df for name, (total, df) in sums.items()}, *scores.shape)
    drawn = components(
        {name: total / random.chisquare(df, draws) for name, (total, df) in sums.items()},
        *scores.shape,
    )
    whole = sum(found.values())
    of_draws = sum(drawn.values())
    rows = []
    for name, variance in found.items():
        low, high = np.quantile(drawn[name] / of_draws, (0.025, 0.975))
        rows.append((name, float(variance**0.5), float(variance / whole), float(low), float(high)))
    return rows


def main(path: str, score: str) -> None:
    by_photographs: dict[str, Runs] = defaultdict(lambda: defaultdict(dict))
    for row in csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines()):
        if row[score]:
            by_photographs[row["photographs"]][row["features"], row["model"]][int(row["seed"])] = (
                float(row[score])
            )
    for photographs, runs in by_photographs.items():
        every = sorted({features for features, _ in runs})
        for features in (each for n in range(len(every), 0, -1) for each in combinations(every, n)):
            models, scores = balanced(runs, features)
            if len(models) > 1:
                size = f"{len(features)} x {len(models)} x {scores.shape[2]}"
                print(
                    f"{photographs}, {score}, {', '.join(features)}, {', '.join(models)} ({size} "
                    "runs)"
                )
                for name, deviation, share, low, high in shares(scores[..., 1]):
                    share_and_interval = f"{share:.0%} of the variance [{low:.0%}, {high:.0%}]"
                    print(f"    {name:<14}{deviation:6.2f}  {share_and_interval}")


if __name__ == "__main__":
    main(*sys.argv[1:])
