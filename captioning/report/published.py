"""Results of papers, to stand beside our rows; their backbones, splits and training are their own.

Sources: [ST] Springenberg et al., "Image-to-Text Transduction with Spatial Self-Attention", ESANN 2018; [SAT] Xu et
al., "Show, Attend and Tell", arXiv:1502.03044v3. [SAT] computes BLEU without a brevity penalty.
"""

from collections.abc import Collection
from typing import NamedTuple

ST, SAT = "[ST] Table 1", "[SAT] Table 1"
SOFT, HARD = "Show, Attend and Tell, soft", "Show, Attend and Tell, hard"
PLAIN = "VGG-19; BLEU without brevity penalty"
JOINED = "joins hard attention's BLEU to soft attention's METEOR"


class Published(NamedTuple):
    """One row of numbers, 0-100."""

    system: str
    models: tuple[str, ...]  # configurations of that system in `conf/model`
    source: str
    caveat: str
    numbers: tuple[float, float, float, float, float]

    @property
    def scores(self) -> dict[str, float]:
        return dict(zip(("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR"), self.numbers, strict=True))


# by the data set's configuration, see `conf/data`
PUBLISHED = {
    "coco": (
        Published(
            "spatial transformer", ("spatial_transformer",), ST, "VGG-11, COCO 2014", (66.7, 46.4, 31.2, 22.6, 21.8)
        ),
        Published(f"{SOFT} and hard", ("sat_soft", "sat_hard"), ST, JOINED, (71.8, 50.4, 35.7, 25.0, 23.9)),
        Published(SOFT, ("sat_soft",), SAT, PLAIN, (70.7, 49.2, 34.4, 24.3, 23.90)),
        Published(HARD, ("sat_hard",), SAT, PLAIN, (71.8, 50.4, 35.7, 25.0, 23.04)),
    ),
    "flickr8k": (
        Published(SOFT, ("sat_soft",), SAT, PLAIN, (67.0, 44.8, 29.9, 19.5, 18.93)),
        Published(HARD, ("sat_hard",), SAT, PLAIN, (67.0, 45.7, 31.4, 21.3, 20.30)),
    ),
    "flickr30k": (
        Published(SOFT, ("sat_soft",), SAT, PLAIN, (66.7, 43.4, 28.8, 19.1, 18.49)),
        Published(HARD, ("sat_hard",), SAT, PLAIN, (66.9, 43.9, 29.6, 19.9, 18.46)),
    ),
}


def published_rows(data: Collection[str], models: Collection[str]) -> tuple[Published, ...]:
    """The rows of these data sets and systems, of which `sat_soft_small` is `sat_soft`."""
    return tuple(
        row
        for name, rows in PUBLISHED.items()
        if name in data
        for row in rows
        if any(model == of or model.startswith(f"{of}_") for model in models for of in row.models)
    )
