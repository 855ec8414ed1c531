"""What papers report, to stand beside our rows; their backbones, splits and training are their own.

Sources: [ST] Springenberg et al., "Image-to-Text Transduction with Spatial Self-Attention", ESANN 2018; [SAT] Xu et
al., "Show, Attend and Tell", arXiv:1502.03044v3. [SAT] computes BLEU without a brevity penalty.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """One row: BLEU-1 to BLEU-4 and METEOR, 0-100."""

    system: str
    source: str
    bleu: tuple[float, float, float, float]
    meteor: float
    caveat: str


_NO_PENALTY = "VGG-19; BLEU without brevity penalty"
PUBLISHED = {
    "coco": (
        Published("spatial transformer", "[ST] Table 1", (66.7, 46.4, 31.2, 22.6), 21.8, "VGG-11, COCO 2014"),
        Published(
            '"Show, Attend and Tell"',
            "[ST] Table 1",
            (71.8, 50.4, 35.7, 25.0),
            23.9,
            "joins hard attention's BLEU to soft attention's METEOR",
        ),
        Published("soft attention", "[SAT] Table 1", (70.7, 49.2, 34.4, 24.3), 23.90, _NO_PENALTY),
        Published("hard attention", "[SAT] Table 1", (71.8, 50.4, 35.7, 25.0), 23.04, _NO_PENALTY),
    ),
    "flickr8k": (
        Published("soft attention", "[SAT] Table 1", (67.0, 44.8, 29.9, 19.5), 18.93, _NO_PENALTY),
        Published("hard attention", "[SAT] Table 1", (67.0, 45.7, 31.4, 21.3), 20.30, _NO_PENALTY),
    ),
    "flickr30k": (
        Published("soft attention", "[SAT] Table 1", (66.7, 43.4, 28.8, 19.1), 18.49, _NO_PENALTY),
        Published("hard attention", "[SAT] Table 1", (66.9, 43.9, 29.6, 19.9), 18.46, _NO_PENALTY),
    ),
}
