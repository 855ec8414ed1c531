"""Figures on their way to files."""

import warnings
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine

DPI = 200


def figure(width: float, height: float, layout: LayoutEngine | None = None) -> Figure:
    """An empty white page, in inches, which is readable on dark screens too."""
    made = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(made)
    return made


def save(drawn: Figure, path: Path) -> list[Path]:
    """Saves `path` as PNG and beside it as PDF, whose text is text; the same figure gives the same files."""
    paths = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    with warnings.catch_warnings(), matplotlib.rc_context({"pdf.fonttype": 42}):  # publishers refuse type 3
        warnings.simplefilter("ignore", UserWarning)  # of letters that the font has not
        drawn.savefig(paths[0], pil_kwargs={"optimize": True})
        drawn.savefig(paths[1], metadata={"CreationDate": None})
    return paths
