"""Hallucination rates of recorded runs on drawn scenes, with and without attention.

    python -m experiments.zoo_shapes.hallucination experiments/zoo_shapes

Reads the captions and references of every run below the folder, and writes `hallucination.csv`
there: rates, and counts of relations between two objects that are right, reversed or on the other
axis. Prints rank correlations with CIDEr (Spearman), and differences with 95 % intervals. Those of
two systems, of one run each, contain the scenes alone; groups of systems are compared by their
mean, with the systems in the place of runs (`captioning.metrics.contrasts`).
"""

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from captioning.files import markdown_table
from captioning.metrics.contrasts import compare, measure
from captioning.metrics.statistics import Statistics
from captioning.runs.evaluation.captions import read_records
from experiments.scenes.metric import NAMES, DrawnScenes, scene_of
from experiments.scenes.parsing import OPPOSITE, parse

RECURRENT = ("sat_", "hui_", "gru_", "up_down", "aoa", "x_linear")  # with attention
PAIRS = ("hui_soft - lstm_every", "sat_soft - lstm_every", "gru_attention - meshed_memory")
PAIRS += (
    "sat_soft - transformer_prenorm",
    "sat_soft - spatial_transformer",
    "gru_attention - gru_conditional",
)
WAYS = ("right", "opposite", "other axis")


@dataclass
class Tested:
    """A run with its rates, in percent."""

    name: str
    attends: bool
    cider: float
    rates: dict[str, float]  # without those of which nothing was said
    ways: Counter[str]  # of relations between two objects that are there
    statistics: Statistics

    @classmethod
    def read(cls, folder: Path) -> "Tested":
        lines = read_records(folder)
        lines.sort(key=lambda line: line.image_id)
        scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))["scores"]
        captions = [[line.caption] for line in lines]
        found = DrawnScenes().compute(captions, [line.references for line in lines])
        assert found.statistics is not None
        rates = {name: 100 * share for name, share in found.corpus.items()}
        ways = Counter(way for line in lines for way in relations(line.references, line.caption))
        return cls(
            folder.name,
            "attention entropy" in scores,
            scores["CIDEr"],
            rates,
            ways,
            found.statistics,
        )


def relations(references: Sequence[str], caption: str) -> Iterator[str]:
    """One of `WAYS` for each relation that a caption of a scene of two names."""
    scene, said = scene_of(tuple(references)), parse(caption)
    assert scene is not None
    for ((a, direction, b), *_), *_ in said.statements:
        known = scene.relations.get((said.things[a].text, said.things[b].text))
        if known is not None:
            yield (
                WAYS[0]
                if direction in known
                else WAYS[1]
                if OPPOSITE[direction] in known
                else WAYS[2]
            )


def ranks(values: Sequence[float]) -> np.ndarray:
    """From 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def correlation(pairs: Iterable[tuple[float, float]]) -> str:
    one, other = zip(*pairs, strict=True)
    if len({*other}) == 1:
        return ""
    return f"{np.corrcoef(ranks(one), ranks(other))[0, 1]:+.2f}"


def compared(ours: Sequence[Tested], theirs: Sequence[Tested]) -> list[str]:
    """A cell for each rate: the difference and its interval; empty where one of the systems said
    no cases.
    """
    found = compare(*(measure([[each.statistics] for each in of]) for of in (ours, theirs)))
    cells = []
    for name in NAMES:
        d = found.get(name)
        known = d is not None and d.low is not None
        cells.append(f"{d.difference:+z.0f} [{d.low:+z.0f}, {d.high:+z.0f}]" if known else "")
    return cells


def main(folder: Path) -> None:
    runs = sorted(
        (Tested.read(path.parent) for path in folder.glob("*/scores.json")),
        key=lambda run: -run.cider,
    )
    with (folder / "hallucination.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["system", "attention", "CIDEr", *NAMES, *WAYS])
        for run in runs:
            rates = ("" if name not in run.rates else f"{run.rates[name]:.2f}" for name in NAMES)
            row = [run.name, "yes" if run.attends else "no", f"{run.cider:.1f}", *rates]
            table.writerow([*row, *(run.ways[way] for way in WAYS)])

    parts = {"all": runs, "CIDEr above 500": [run for run in runs if run.cider > 500]}
    rows = [
        [
            part,
            *(
                correlation((run.cider, run.rates[n]) for run in of if n in run.rates)
                for n in NAMES
            ),
        ]
        for part, of in parts.items()
    ]
    print(markdown_table(["rank correlation with CIDEr", *NAMES], rows), end="\n\n")

    without = [run for run in runs if not run.attends]
    groups: dict[str, tuple[Sequence[Tested], Sequence[Tested]]] = {
        "attention - none": ([run for run in runs if run.attends], without),
        "recurrent with attention - none": (
            [run for run in runs if run.name.startswith(RECURRENT)],
            without,
        ),
    }
    named = {run.name: [run] for run in runs}
    groups |= {pair: (named[pair.split(" - ")[0]], named[pair.split(" - ")[1]]) for pair in PAIRS}
    print(
        markdown_table(
            ["difference", *NAMES], [[name, *compared(*both)] for name, both in groups.items()]
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
