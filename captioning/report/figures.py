"""Figures of a report, learning curves and differences between systems, and figures as files."""

import io
import logging
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from captioning.files import atomic_write
from captioning.metrics.contrasts import ALPHA
from captioning.metrics.metric import OTHER
from captioning.metrics.table import HEADLINE, score_called
from captioning.report.comparison import Compared, both_ways, interval_content
from captioning.report.systems import System, runs_of

DPI = 200
# of the learning curves, beside training losses and a user's scores: columns of `metrics.csv`,
# their names, and the objectives that they are of (empty: all)
ROWS = [
    ("val/nll", "validation loss of\nreferences (nats per word)", ""),
    (f"val/{HEADLINE}", f"validation {HEADLINE}\n({score_called(HEADLINE).unit})", ""),
]
# inches: of a figure; of a row of curves, without the legend; around axes
WIDTH, ROW, PAD = 9.0, 2.5, 0.1
LONG = 2 * 3600.0  # seconds of training from which on the axis counts hours, not minutes
# Okabe and Ito's, which the colour-blind can tell apart; pairs with markers repeat after 77 systems
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", "*", ">", "h")
DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (7, 1.5, 1, 1.5)))
WRAP, TITLE = 40, 100  # letters in a line of a label, and of a title
# inches of a figure of differences: around its rows, and for each line of a label
HEAD, LINE = 0.9, 0.17
APART, ALIKE = "#d55e00", "#606060"
# of a matrix: cells that are told apart; inches of all columns, at least so many; points of letters
# for an inch of a cell
ABOVE, BELOW = "#9ecae1", "#fdae6b"
CELLS, FEWEST, LETTERS = 6.2, 12, 19
# those that are installed have the letters that Matplotlib's own font lacks
FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Noto Sans JP",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Yu Gothic",
    "Noto Sans Thai",
    "Noto Sans Lao",
    "Noto Sans Khmer",
)
matplotlib.rcParams["font.family"] += [font for font in FONTS if font in get_font_names()]
# it tells of every table of a font that a PDF takes in
logging.getLogger("fontTools").setLevel(logging.WARNING)


class Page(Figure):
    """A figure that is drawn once where it is saved, and not a first time to lay it out."""

    def draw(self, renderer: RendererBase) -> None:
        engine = self.get_layout_engine()
        if isinstance(engine, ConstrainedLayoutEngine):  # another one stands there when it is drawn
            engine.execute(self)
        else:
            super().draw(renderer)


def figure(width: float, height: float, **settings: Any) -> Figure:
    """An empty white page, in inches, which is readable on dark screens too."""
    return Page(figsize=(width, height), dpi=DPI, facecolor="white", **settings)


@contextmanager
def any_letters() -> Iterator[None]:
    """Letters that the font has not are boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def save(drawn: Figure, path: Path) -> None:
    """Save a figure as reproducible PNG and PDF files; text in the PDF stays text."""
    png, pdf = path.with_suffix(".png"), path.with_suffix(".pdf")
    with any_letters(), matplotlib.rc_context({"pdf.fonttype": 42}):  # publishers refuse type 3
        with atomic_write(png) as file:
            drawn.savefig(file, format="png")
        with atomic_write(pdf) as file:
            drawn.savefig(file, format="pdf", metadata={"CreationDate": None})


def as_svg(drawn: Figure) -> bytes:
    content = io.BytesIO()
    with (
        any_letters(),
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "captioning"}),
    ):
        drawn.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def curves(systems: Sequence[System]) -> Figure:
    """Loss and validation score against epochs and time.

    Each system has its mean over seeds, and their deviation.
    """
    history = [row for run in runs_of(systems) for row in run.history]
    objectives = sorted({system.objective for system in systems})
    # apart, because an objective may measure the likelihood of other captions than references
    rows = [("train/nll", f"training loss,\n{name} (nats per word)", name) for name in objectives]
    rows += ROWS
    rows += [
        (column, f"validation {name}", "")
        for column in sorted({*chain.from_iterable(history)})
        if (name := column.removeprefix("val/")) != column and score_called(name).group == OTHER
    ]
    page = figure(WIDTH, ROW * len(rows), layout="constrained")
    page.get_layout_engine().set(w_pad=PAD, h_pad=PAD)  # type: ignore[union-attr, call-arg]
    last = max((row["seconds"] for row in history if "seconds" in row), default=0.0)
    unit, seconds = ("hours", 3600.0) if last > LONG else ("minutes", 60.0)
    grid = page.subplots(len(rows), 2, sharex="col", sharey="row")
    for row, (value, name, objective) in zip(grid, rows, strict=True):
        row[0].set_ylabel(name)
        _draw_curves(row[0], systems, objective, value, "epoch", 1.0)
        _draw_curves(row[1], systems, objective, value, "seconds", seconds)
    grid[-1][0].xaxis.set_major_locator(MaxNLocator(integer=True))
    grid[-1][0].set_xlabel("epochs")
    grid[-1][1].set_xlabel(f"{unit} of training")
    for axes in grid[-1]:
        axes.set_xlim(left=0)
    with any_letters():
        _add_legend(page)
    return page


def _draw_curves(
    axes: Axes, systems: Sequence[System], objective: str, value: str, against: str, unit: float
) -> None:
    """Draw those of an objective; of all, where it is empty."""
    axes.grid(alpha=0.3)
    lines = [
        system.curve(value, against) if objective in ("", system.objective) else []
        for system in systems
    ]
    for number, (system, points) in enumerate(zip(systems, lines, strict=True)):
        positions, means, deviations = np.array(points).reshape(-1, 3).T
        # epoch 0 is over when it is validated
        x = positions / unit + (against == "epoch")
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            x,
            means,
            label=system.label,
            color=colour,
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4.5,
            linewidth=1.4,
        )
        if len(system.runs) > 1:
            low, high = means - deviations, means + deviations
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if not any(lines):
        axes.text(
            0.5, 0.5, "not logged", color=ALIKE, transform=axes.transAxes, ha="center", va="center"
        )


def _add_legend(page: Figure) -> None:
    """Add a legend below all axes, and enlarge the page by its height."""
    handles, labels = page.axes[0].get_legend_handles_labels()
    wrapped = ["\n".join(textwrap.wrap(label, WRAP)) for label in labels]
    for columns in range(min(4, len(labels)), 0, -1):
        legend = page.legend(
            handles,
            wrapped,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=4,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        box = legend.get_window_extent()
        if box.width <= 0.95 * page.bbox.width or columns == 1:
            break
        legend.remove()
    page.set_size_inches(WIDTH, page.get_figheight() + box.height / page.dpi)


def intervals(systems: Sequence[System], compared: Compared, names: Sequence[str]) -> Figure:
    """Differences by these scores, the main one first, from one system, with their 95 % intervals.

    All are compared with the first of those that have the most runs, since one run may be the best
    by luck.
    """
    names = sorted(names, key=lambda name: name != HEADLINE)
    by_pair = both_ways(compared)
    candidates = sorted({one for one, _ in by_pair})
    best = max(candidates, key=lambda index: len(systems[index].runs))
    others = {one: by_pair[one, best] for one in candidates if (one, best) in by_pair}
    labels = [textwrap.wrap(systems[index].label, WRAP) for index in others]
    page = figure(
        WIDTH, HEAD + LINE * sum(1 + len(lines) for lines in labels), layout="constrained"
    )
    (panels,) = page.subplots(1, len(names), sharey=True, squeeze=False)
    for name, axes in zip(names, panels, strict=True):
        axes.axvline(0, color="#202020", linewidth=1)
        axes.grid(axis="x", alpha=0.3)
        score, rows = score_called(name), [by_name[name] for by_name in others.values()]
        axes.set_xlabel(f"{score.heading}:\n{score.printed(rows[0].theirs)} at 0")
        for height, row in enumerate(rows):
            colour = APART if row.excludes_zero else ALIKE
            if row.low is not None and row.high is not None:
                axes.plot([row.low, row.high], [height, height], color=colour, linewidth=1.6)
            axes.plot([row.difference], [height], color=colour, marker="o", markersize=4.5)
    panels[0].set_yticks(
        range(len(others)), ["\n".join(lines) for lines in labels], parse_math=False
    )
    panels[0].set_ylim(len(others) - 0.5, -0.5)
    title = f"difference from {systems[best].label}, grey where the interval holds 0"
    return _titled(page, f"{title}. {interval_content(compared)}")


def _titled(page: Figure, title: str) -> Figure:
    page.suptitle("\n".join(textwrap.wrap(title, TITLE)), parse_math=False, fontsize="medium")
    return page


def matrix(systems: Sequence[System], compared: Compared, name: str) -> Figure:
    """Differences by a score of each system, in its row, minus each other one, in its column."""
    places, cell = range(len(systems)), CELLS / max(len(systems), FEWEST)
    page = figure(WIDTH, HEAD + cell * len(systems), layout="constrained")
    axes = page.subplots()
    for (row, column), rows in both_ways(compared).items():
        d, ink = rows[name], ALIKE
        if d.told_apart:
            axes.barh(row, 1, 1, column - 0.5, color=ABOVE if d.difference > 0 else BELOW)
            ink = "black"
        text = f"{d.difference:+z.1f}"
        axes.text(column, row, text, color=ink, fontsize=LETTERS * cell, ha="center", va="center")
    axes.set(xlim=(-0.5, len(systems) - 0.5), ylim=(len(systems) - 0.5, -0.5))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=8)
    axes.set_xticks(places, [str(place + 1) for place in places])
    labels = [
        textwrap.wrap(f"{number}  {system.label}", WRAP, max_lines=2)
        for number, system in enumerate(systems, start=1)
    ]
    axes.set_yticks(places, ["\n".join(lines) for lines in labels], parse_math=False)
    title = (
        f"{score_called(name).heading}, row minus column; coloured where p is below {ALPHA:g} "
        f"after Holm's correction for {len(compared)} pairs"
    )
    return _titled(page, f"{title}. {interval_content(compared)}")
