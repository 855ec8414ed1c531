"""Results of papers, to stand beside our rows; their backbones, splits and training are their own.

`published.csv` has them, `data` and `models` as their configurations are called. Sources: [ST] Springenberg et al.,
"Image-to-Text Transduction with Spatial Self-Attention", ESANN 2018; [SAT] Xu et al., "Show, Attend and Tell",
arXiv:1502.03044v3, which computes BLEU without a brevity penalty.
"""

import csv
from collections.abc import Collection
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Published:
    """One row of scores, 0-100."""

    data: str
    models: list[str]
    system: str
    source: str
    caveat: str
    scores: dict[str, float]


def published_rows(data: Collection[str], models: Collection[str] | None = None) -> tuple[Published, ...]:
    """The rows of these data sets, and of these systems, of which `sat_soft_small` is `sat_soft`; None: of all."""
    found = []
    for row in csv.DictReader((files(__package__) / "published.csv").read_text(encoding="utf-8").splitlines()):
        texts = {name: row.pop(name) for name in ("data", "system", "source", "caveat")}
        of, scores = row.pop("models").split(), {name: float(score) for name, score in row.items()}
        known = models is None or any(model == each or model.startswith(f"{each}_") for model in models for each in of)
        if texts["data"] in data and known:
            found.append(Published(models=of, scores=scores, **texts))
    return tuple(found)
