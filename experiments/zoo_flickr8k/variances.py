"""Print the variances of CIDEr over seeds, images and both, and what one seed can find.

`python experiments/zoo_flickr8k/variances.py`: of the systems here that have three seeds, and the
difference that 5,000 test images find with a probability of 80 % if the variances are known.
"""

import math
from pathlib import Path
from statistics import NormalDist

import numpy as np

from captioning.metrics.contrasts import Measured
from captioning.report.runs import find_runs
from captioning.report.systems import group, newest
from captioning.runs.evaluation.captions import add_scores
from experiments.power import Components, components

SEEDS, IMAGES = 3, 5000


def variances(folder: Path, cache: Path) -> Components:
    runs, _ = newest(find_runs(folder)[0])
    tables = []
    for system in group(runs):
        if len(system.runs) < SEEDS:
            continue
        scores = []
        for run in system.runs:
            add_scores(run.captions, ["CIDEr"], run.spoken([]), cache)
            by_image = {str(record.image_id): record.scores["CIDEr"] for record in run.captions}
            scores.append([by_image[image] for image in sorted(by_image)])
        tables.append(Measured.from_values(np.array(scores, float)))
    return components(tables)


def main() -> None:
    found = variances(Path(__file__).parent, Path("cache"))
    error = math.sqrt(2 * (found.seed + (found.both + found.image) / IMAGES))
    quantiles = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    print(found)
    print(f"standard error {error:.2f}, detectable with one seed {quantiles * error:.2f}")


if __name__ == "__main__":
    main()
