"""Results of papers, to stand beside our rows; their backbones, splits and training are their own.

Sources: [ST] Springenberg et al., "Image-to-Text Transduction with Spatial Self-Attention", ESANN 2018; [SAT] Xu et
al., "Show, Attend and Tell", arXiv:1502.03044v3. [SAT] computes BLEU without a brevity penalty.
"""

from collections.abc import Collection
from dataclasses import dataclass

from captioning.report.systems import system_name


@dataclass(frozen=True, slots=True)
class Published:
    """One row of numbers, 0-100."""

    system: str
    models: tuple[str, ...]  # configurations of that system in `conf/model`
    source: str
    bleu: tuple[float, float, float, float]
    meteor: float
    caveat: str

    @property
    def scores(self) -> dict[str, float]:
        """By the names that our tables have."""
        return {f"BLEU-{n}": score for n, score in enumerate(self.bleu, start=1)} | {"METEOR": self.meteor}


def _soft(bleu: tuple[float, float, float, float], meteor: float) -> Published:
    return Published(system_name("sat_soft"), ("sat_soft",), "[SAT] Table 1", bleu, meteor, _NO_PENALTY)


def _hard(bleu: tuple[float, float, float, float], meteor: float) -> Published:
    return Published(system_name("sat_hard"), ("sat_hard",), "[SAT] Table 1", bleu, meteor, _NO_PENALTY)


_NO_PENALTY = "VGG-19; BLEU without brevity penalty"
PUBLISHED = {
    "coco": (
        Published(
            system_name("spatial_transformer"),
            ("spatial_transformer",),
            "[ST] Table 1",
            (66.7, 46.4, 31.2, 22.6),
            21.8,
            "VGG-11, COCO 2014",
        ),
        Published(
            "Show, Attend and Tell, soft and hard",
            ("sat_soft", "sat_hard"),
            "[ST] Table 1",
            (71.8, 50.4, 35.7, 25.0),
            23.9,
            "joins hard attention's BLEU to soft attention's METEOR",
        ),
        _soft((70.7, 49.2, 34.4, 24.3), 23.90),
        _hard((71.8, 50.4, 35.7, 25.0), 23.04),
    ),
    "flickr8k": (_soft((67.0, 44.8, 29.9, 19.5), 18.93), _hard((67.0, 45.7, 31.4, 21.3), 20.30)),
    "flickr30k": (_soft((66.7, 43.4, 28.8, 19.1), 18.49), _hard((66.9, 43.9, 29.6, 19.9), 18.46)),
}
"""Rows by the data set's configuration, see `conf/data`."""


def published_rows(data: Collection[str], models: Collection[str]) -> tuple[Published, ...]:
    """The rows of these data sets and systems, of which `sat_soft_small` is `sat_soft`."""
    return tuple(
        row
        for name, rows in PUBLISHED.items()
        if name in data
        for row in rows
        if any(model == of or model.startswith(f"{of}_") for model in models for of in row.models)
    )
