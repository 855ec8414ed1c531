"""Empty figures, and figures as files."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine

DPI = 200

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of every table of a font that a PDF takes in


def figure(width: float, height: float, layout: LayoutEngine | None = None) -> Figure:
    """An empty white page, in inches, which is readable on dark screens too."""
    made = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=layout)
    FigureCanvasAgg(made)
    return made


@contextmanager
def any_letters() -> Iterator[None]:
    """Letters that the font has not are boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def save(drawn: Figure, path: Path) -> list[Path]:
    """Saves `path` as PNG and beside it as PDF, whose text is text; the same figure gives the same files."""
    paths = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    with any_letters(), matplotlib.rc_context({"pdf.fonttype": 42}):  # publishers refuse type 3
        drawn.savefig(paths[0])
        drawn.savefig(paths[1], metadata={"CreationDate": None})
    return paths


def as_svg(drawn: Figure) -> bytes:
    """The same figure for a page."""
    content = io.BytesIO()
    with any_letters(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "captioning"}):
        drawn.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()
