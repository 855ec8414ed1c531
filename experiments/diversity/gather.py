"""Gather the evaluations of a folder into `scores.csv`.

    python -m experiments.diversity.gather FOLDER

A row per checkpoint and way to make several captions; also the same scores of the references of the
test scenes, each set taken as the captions of its scene.
"""

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from captioning.metrics import Scorer
from captioning.runs.evaluation.captions import read_records
from experiments.diversity.metric import Diversity

OBJECTIVES = {"demo": "cross-entropy", "self_critical_shapes": "self-critical"}
RUN = re.compile(r"(demo|self_critical_shapes)-(\w+)_small-seed(\d+)")
SCORES = ("CIDEr", *(score.name for score in Diversity.scores))


def rows(folder: Path) -> Iterator[dict[str, object]]:
    for file in sorted(folder.glob("**/scores.json")):
        record = json.loads(file.read_text())
        name, system, seed = RUN.search(record["provenance"]["checkpoint"]["file"]).groups()
        decoding = record["provenance"]["decoding"]
        search = decoding["_target_"].rpartition(".")[2]
        if "temperature" in decoding:
            search += f", temperature {decoding['temperature']:g}"
        row = {"system": system, "objective": OBJECTIVES[name], "seed": seed, "captions": search}
        yield row | {score: f"{record['scores'][score]:.4f}" for score in SCORES}
    references = [record.references for record in read_records(file.parent)]
    scores = Scorer(references, [Diversity()]).score(dict(enumerate(references))).corpus
    kept = [name for name in scores if "CIDEr (" not in name]  # of a caption with itself
    yield {"system": "references"} | {score: f"{scores[score]:.4f}" for score in kept}


def main(folder: str) -> None:
    found = sorted(rows(Path(folder)), key=lambda row: [str(value) for value in row.values()][:4])
    columns = ["system", "objective", "seed", "captions", *SCORES]
    with (Path(__file__).parent / "scores.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    main(sys.argv[1])
