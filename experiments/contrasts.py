"""Differences between recorded systems, a row each, as a page tells them.

    python experiments/contrasts.py experiments/attention/contrasts.csv [METEOR or another score]

A row of the file has the text of its contrast, its systems and their weights. A system is a pattern
of the folders of its runs below `experiments`, such as `zoo_flickr8k/sat_soft-seed?`. The weights
`1 -1` stand for a difference of two systems, `1 -1 -1 1` for the change of one.

Prints Markdown: the weighted sum with a 95 % interval that contains test images and training
(`captioning.metrics.contrasts`), p, and p after Holm's correction for all rows of the file. One of
a single seed takes the training variance of the other systems in the file.
"""

import csv
import sys
from fractions import Fraction
from pathlib import Path

from captioning.errors import CaptioningError
from captioning.files import markdown_table
from captioning.metrics.contrasts import Measured, contrast, corrected, measure
from captioning.metrics.scorer import Scorer
from captioning.metrics.table import HEADLINE, METRICS
from captioning.report.runs import find_runs
from captioning.report.systems import Test

HERE = Path(__file__).parent


def read(pattern: str, score: str, tests: dict[str, Test]) -> Measured:
    """The score of a system; `tests` keeps the scorer of each file of references."""
    runs = [run for folder in sorted(HERE.glob(pattern)) for run in find_runs(folder)[0]]
    if not runs:
        raise CaptioningError(f"there is no tested run {pattern} below {HERE}")
    captions = [{line.image_id: line for line in run.captions} for run in runs]
    digest = runs[0].provenance.references["sha256"]  # other training images have the same
    if digest not in tests:
        references = {image: line.references for image, line in captions[0].items()}
        metric = next(m.name for m in METRICS.values() if score in {one.name for one in m.scores})
        tests[digest] = Test(references, Scorer(list(references.values()), [metric]))
    test = tests[digest]
    scored = [test.score([lines[image] for image in test.references]) for lines in captions]
    return measure(scored)[score]


def table(path: Path, score: str) -> str:
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    tests: dict[str, Test] = {}
    names = dict.fromkeys(name for row in rows for name in row["systems"].split())
    systems = {name: read(name, score, tests) for name in names}
    family = {}
    for row in rows:
        chosen = [systems[name] for name in row["systems"].split()]
        weights = [float(Fraction(weight)) for weight in row["weights"].split()]
        seeds = " ".join(str(system.runs) for system in chosen)
        family[row["contrast"], seeds] = contrast(chosen, weights, systems.values())
    cells = [
        [
            *row,
            f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}]",
            f"{found.p:.4f}",
            f"{found.adjusted:.3f}",
        ]
        for row, found in corrected(family).items()
    ]
    return markdown_table(["contrast", "seeds", f"{score} [95 %]", "p", "corrected"], cells)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]), *(sys.argv[2:] or [HEADLINE])))
