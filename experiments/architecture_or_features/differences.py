"""How much the difference in CIDEr of two architectures changes with the network of the features.

    python experiments/architecture_or_features/differences.py RUN ...

Reads recorded runs, and prints Markdown: for each two architectures and each two networks the
change, with a 95 % interval that contains test images and seeds (`captioning.metrics.contrasts`),
p, and p after Holm's correction for all changes of the table.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from captioning.metrics.contrasts import Difference, Measured, contrast, corrected, measure
from captioning.metrics.scorer import Scorer
from captioning.metrics.statistics import Statistics
from captioning.report.runs import find_runs
from captioning.report.systems import Test

SCORE = "CIDEr"


def read(folders: list[str]) -> dict[str, dict[str, Measured]]:
    """CIDEr by network and model."""
    runs = [run for folder in folders for run in find_runs(Path(folder))[0]]
    references = {line.image_id: line.references for line in runs[0].captions}
    test = Test(references, Scorer(list(references.values()), [SCORE]))
    seeds: dict[tuple[str, str], list[Sequence[Statistics]]] = defaultdict(list)
    for run in runs:
        records = {line.image_id: line for line in run.captions}
        statistics = test.score([records[image] for image in references])
        seeds[str(run.recorded["backbone.name"]), run.model].append(statistics)
    found: dict[str, dict[str, Measured]] = defaultdict(dict)
    for (network, model), of_seeds in sorted(seeds.items()):
        found[network][model] = measure(of_seeds)[SCORE]
    return found


def changes(found: dict[str, dict[str, Measured]]) -> list[str]:
    models = sorted(set.intersection(*map(set, found.values())))
    family: dict[str, Difference] = {}
    for first, second in combinations(models, 2):
        for one, other in combinations(found, 2):
            four = [found[network][model] for network in (one, other) for model in (first, second)]
            family[f"{first} - {second} | {one} | {other}"] = contrast(four, (1, -1, -1, 1))
    lines = ["| difference | with | minus with | change | p | corrected |", f"|{'---|' * 6}"]
    for pair, change in corrected(family).items():
        cells = f"{change.difference:+.1f} [{change.low:+.1f}, {change.high:+.1f}]"
        lines.append(f"| {pair} | {cells} | {change.p:.4f} | {change.adjusted:.4f} |")
    return lines


if __name__ == "__main__":
    print("\n".join(changes(read(sys.argv[1:]))))
