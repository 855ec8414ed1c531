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
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names
from matplotlib.ticker import MaxNLocator

from captioning.files import atomic_write
from captioning.metrics.metric import OTHER
from captioning.metrics.table import HEADLINE, score_called
from captioning.report.comparison import Compared
from captioning.report.systems import System

DPI = 200
# of the learning curves, and a user's scores: columns of `metrics.csv`, and their names
ROWS = {
    "train/nll": "training loss\n(nats per word)",
    "val/nll": "validation loss\n(nats per word)",
    f"val/{HEADLINE}": f"validation {HEADLINE}\n({score_called(HEADLINE).unit})",
}
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


def figure(width: float, height: float, **settings: Any) -> Figure:
    """An empty white page, in inches, which is readable on dark screens too."""
    made = Figure(figsize=(width, height), dpi=DPI, facecolor="white", **settings)
    FigureCanvasAgg(made)
    return made


@contextmanager
def any_letters() -> Iterator[None]:
    """Letters that the font has not are boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def save(drawn: Figure, path: Path) -> list[Path]:
    """Save a figure as reproducible PNG and PDF files; text in the PDF stays text."""
    png, pdf = path.with_suffix(".png"), path.with_suffix(".pdf")
    with any_letters(), matplotlib.rc_context({"pdf.fonttype": 42}):  # publishers refuse type 3
        with atomic_write(png) as file:
            drawn.savefig(file, format="png")
        with atomic_write(pdf) as file:
            drawn.savefig(file, format="pdf", metadata={"CreationDate": None})
    return [png, pdf]


def as_svg(drawn: Figure) -> bytes:
    content = io.BytesIO()
    with (
        any_letters(),
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "captioning"}),
    ):
        drawn.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def curves(systems: Sequence[System]) -> Figure:
    """Loss and validation score against epochs and time: each system's mean over seeds, and their
    deviation.
    """
    history = [row for system in systems for run in system.runs for row in run.history]
    rows = ROWS | {
        column: f"validation {name}"
        for column in sorted({*chain.from_iterable(history)})
        if (name := column.removeprefix("val/")) != column and score_called(name).group == OTHER
    }
    page = figure(WIDTH, ROW * len(rows), layout="constrained")
    page.get_layout_engine().set(w_pad=PAD, h_pad=PAD)  # type: ignore[union-attr, call-arg]
    seconds = [
        x for system in systems for value in rows for x, *_ in system.curve(value, "seconds")
    ]
    hours = max(seconds, default=0.0) > LONG
    grid = page.subplots(len(rows), 2, sharex="col", sharey="row")
    for row, (value, name) in zip(grid, rows.items(), strict=True):
        row[0].set_ylabel(name)
        _draw_curves(row[0], systems, value, "epoch", 1.0)
        _draw_curves(row[1], systems, value, "seconds", 3600.0 if hours else 60.0)
    grid[-1][0].xaxis.set_major_locator(MaxNLocator(integer=True))
    grid[-1][0].set_xlabel("epochs")
    grid[-1][1].set_xlabel(f"{'hours' if hours else 'minutes'} of training")
    for axes in grid[-1]:
        axes.set_xlim(left=0)
    with any_letters():
        _add_legend(page)
    return page


def _draw_curves(
    axes: Axes, systems: Sequence[System], value: str, against: str, unit: float
) -> None:
    axes.grid(alpha=0.3)
    lines = [system.curve(value, against) for system in systems]
    for number, (system, points) in enumerate(zip(systems, lines, strict=True)):
        # epoch 0 is over when it is validated
        x = [position / unit + (against == "epoch") for position, *_ in points]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            x,
            [mean for _, mean, _ in points],
            label=system.label,
            color=colour,
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4.5,
            linewidth=1.4,
        )
        if len(system.runs) > 1:
            low = [mean - deviation for _, mean, deviation in points]
            high = [mean + deviation for _, mean, deviation in points]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if not any(lines):
        middle: Any = {"transform": axes.transAxes, "ha": "center", "va": "center"}
        axes.text(0.5, 0.5, "not logged", color=ALIKE, **middle)


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


def intervals(systems: Sequence[System], compared: Compared, names: Sequence[str]) -> Figure | None:
    """Differences by these scores, the main one first, from one system, with their 95 % intervals.

    All are compared with the best of those that have the most runs, since one run may be the best
    by luck; None where no two systems were compared.
    """
    names = [
        name for name in names if compared and all(name in by_name for by_name in compared.values())
    ]
    names.sort(key=lambda name: name != HEADLINE)
    if not names:
        return None
    both_ways = dict(compared)
    for (one, other), by_name in compared.items():
        both_ways[other, one] = {name: row.reversed for name, row in by_name.items()}
    sign = -1 if score_called(names[0]).best == "min" else 1
    scores = {one: sign * by_name[names[0]].ours for (one, _), by_name in both_ways.items()}
    best = max(scores, key=lambda index: (len(systems[index].runs), scores[index]))
    others = {one: by_name for (one, other), by_name in both_ways.items() if other == best}
    order = sorted(others, key=lambda index: -scores[index])
    labels = [textwrap.wrap(systems[index].label, WRAP) for index in order]
    page = figure(
        WIDTH, HEAD + LINE * sum(1 + len(lines) for lines in labels), layout="constrained"
    )
    (panels,) = page.subplots(1, len(names), sharey=True, squeeze=False)
    for name, axes in zip(names, panels, strict=True):
        axes.axvline(0, color="#202020", linewidth=1)
        axes.grid(axis="x", alpha=0.3)
        score, rows = score_called(name), [others[index][name] for index in order]
        axes.set_xlabel(f"{score.heading}:\n{score.printed(rows[0].theirs)} at 0")
        for height, row in enumerate(rows):
            colour = APART if row.excludes_zero else ALIKE
            if row.low is not None and row.high is not None:
                axes.plot([row.low, row.high], [height, height], color=colour, linewidth=1.6)
            axes.plot([row.difference], [height], color=colour, marker="o", markersize=4.5)
    panels[0].set_yticks(
        range(len(order)), ["\n".join(lines) for lines in labels], parse_math=False
    )
    panels[0].set_ylim(len(order) - 0.5, -0.5)
    with any_letters():
        title = f"difference from {systems[best].label} with 95 % interval, grey where that holds 0"
        notes = {row.training: None for by_name in others.values() for row in by_name.values()}
        title += "".join(f"; {note}" for note in notes if note)
        page.suptitle("\n".join(textwrap.wrap(title, TITLE)), parse_math=False, fontsize="medium")
    return page
