"""Variance components of a score: features, architecture, both together, seed.

    python experiments/architecture_or_features/components.py scores.csv SCORE

F feature sets, A architectures, n seeds of each pair. Mean squares of the two-way crossed design with random effects
(Searle, Casella, McCulloch, "Variance Components", 1992, section 4.3) are solved for the variances; a negative solution
is 0. With one feature set the design has one factor. Every set of features is tried, with the architectures that have
two runs or more behind each of them.
"""

import csv
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np

Runs = dict[tuple[str, str], dict[int, float]]


def balanced(runs: Runs, features: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """The architectures with two runs or more behind each of these features, and as many scores of each `[F, A, n]`."""
    named = sorted({model for _, model in runs})
    models = [model for model in named if all(len(runs.get((each, model), ())) > 1 for each in features)]
    least = min((len(runs[each, model]) for each in features for model in models), default=0)
    return models, np.array([[sorted(runs[each, model].items())[:least] for model in models] for each in features])


def components(scores: np.ndarray) -> dict[str, float]:
    """Variances from scores `[F, A, n]`."""
    f, a, n = scores.shape
    cells, of_features, of_models = scores.mean(2), scores.mean((1, 2)), scores.mean((0, 2))
    seed = ((scores - cells[..., None]) ** 2).sum() / (f * a * (n - 1))
    models = n * f * ((of_models - scores.mean()) ** 2).sum() / (a - 1)
    if f == 1:
        return {"architecture": max(0.0, (models - seed) / n), "seed": seed}
    both = n * ((cells - of_features[:, None] - of_models + scores.mean()) ** 2).sum() / ((f - 1) * (a - 1))
    features = n * a * ((of_features - scores.mean()) ** 2).sum() / (f - 1)
    found = {
        "features": (features - both) / (n * a),
        "architecture": (models - both) / (n * f),
        "both together": (both - seed) / n,
        "seed": seed,
    }
    return {name: max(0.0, float(variance)) for name, variance in found.items()}


def main(path: str, score: str) -> None:
    by_photographs: dict[str, Runs] = defaultdict(lambda: defaultdict(dict))
    for row in csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines()):
        if row[score]:
            by_photographs[row["photographs"]][row["features"], row["model"]][int(row["seed"])] = float(row[score])
    for photographs, runs in by_photographs.items():
        every = sorted({features for features, _ in runs})
        for features in (each for n in range(len(every), 0, -1) for each in combinations(every, n)):
            models, scores = balanced(runs, features)
            if len(models) > 1:
                found = components(scores[..., 1])
                whole = sum(found.values())
                size = f"{len(features)} x {len(models)} x {scores.shape[2]}"
                print(f"{photographs}, {score}, {', '.join(features)}, {', '.join(models)} ({size} runs)")
                for name, variance in found.items():
                    print(f"    {name:<14}{variance**0.5:6.2f}  {100 * variance / whole:3.0f} % of the variance")


if __name__ == "__main__":
    main(*sys.argv[1:])
