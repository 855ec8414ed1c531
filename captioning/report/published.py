"""Rows of tables that no run here gave: of papers, and of captioners that were not trained here.

`published.csv` has rows of papers, `data` and `models` as their configurations are called; their
backbones, splits and training are their own. Sources: [ST] Springenberg et al., "Image-to-Text
Transduction with Spatial Self-Attention", ESANN 2018; [SAT] Xu et al., "Show, Attend and Tell",
arXiv:1502.03044v3, which has BLEU without a brevity penalty.
"""

import csv
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from captioning.errors import CaptioningError, quoted
from captioning.files import packaged_text
from captioning.metrics.table import SCORES
from captioning.pretrained.library import UNTRAINED
from captioning.report.runs import read_record


@dataclass(frozen=True)
class Published:
    """One row of scores, 0-100, of a paper or of a captioner that was not trained here."""

    system: str
    source: str
    caveat: str
    scores: dict[str, float]


def published_rows(data: Collection[str], models: Collection[str] | None = None) -> list[Published]:
    """Return published rows of these data sets and systems (None: all).

    `sat_soft_small` counts as `sat_soft`.
    """
    published = []
    for row in csv.DictReader(packaged_text(__package__, "published.csv").splitlines()):
        of = tuple(f"{model}_" for model in row["models"].split())
        fits = models is None or any(f"{model}_".startswith(of) for model in models)
        if row["data"] in data and fits:
            scores = {name: float(row[name]) for name in row if name in SCORES and row[name]}
            published.append(Published(row["system"], row["source"], row["caveat"], scores))
    return published


def untrained_rows(folder: Path) -> list[tuple[str | None, Published]]:
    """Return evaluations of captioners that were not trained here, with their data's digest."""
    rows = []
    for path in sorted(folder.rglob("scores.json")):
        with suppress(CaptioningError):  # not of this version
            record = read_record(path)
            known, scores = record.provenance, record.scores
            system, mark, _ = (known.system or "").partition(f", {UNTRAINED}")
            if mark:
                settings = {**known.checkpoint, **known.decoding}.items()
                caveat = ", ".join(f"{key}={quoted(x)}" for key, x in settings if x is not None)
                shown = ((name, scores.get(name)) for name in SCORES)
                rounded = {name: round(x, 1) for name, x in shown if x is not None}
                rows.append((known.data_digest, Published(system, UNTRAINED, caveat, rounded)))
    return rows
