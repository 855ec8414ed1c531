"""Learning curves: loss and validation CIDEr, against epochs and against time."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from captioning.report.drawing import any_letters, figure, save
from captioning.report.systems import System, Value

ROWS = (
    ("train/nll", "training loss\n(nats per word)"),
    ("val/nll", "validation loss\n(nats per word)"),
    ("val/CIDEr", "validation CIDEr\n(x 100)"),
)
WIDTH, ROW, PAD = 9.0, 2.5, 0.1
"""Inches, without the legend: of the page, of a row, around axes."""
LONG = 2.0
"""Hours from which on time is not shown in minutes."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which the colour-blind can tell apart."""
DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (7, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", "*", ">", "h")
"""As many as have no divisor in common with the colours: pairs repeat after 77 systems."""
WRAP = 40
"""Letters in a line of the legend."""


def save_curves(path: Path, systems: Sequence[System]) -> list[Path]:
    """Saves `path` with the suffixes `.png` and `.pdf`: for each system the mean of its seeds and their deviation."""
    return save(_drawn(systems), path)


def _drawn(systems: Sequence[System]) -> Figure:
    page = figure(WIDTH, ROW * len(ROWS), ConstrainedLayoutEngine(w_pad=PAD, h_pad=PAD))
    unit, time = time_unit(systems)
    grid = page.subplots(len(ROWS), 2, sharex="col", sharey="row")
    for row, (value, name) in zip(grid, ROWS, strict=True):
        row[0].set_ylabel(name)
        _draw(row[0], systems, value, "epoch", 1.0)
        _draw(row[1], systems, value, "seconds", unit)
    grid[-1][0].xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes, name in zip(grid[-1], ("epochs", time), strict=True):
        axes.set_xlabel(name)
        if (end := axes.get_xlim()[1]) > 0:
            axes.set_xlim(0, end)
    with any_letters():
        _add_legend(page)
    return page


def time_unit(systems: Sequence[System]) -> tuple[float, str]:
    """Seconds in what time is counted in, and what an axis says of it."""
    seconds = max((x for s in systems for value, _ in ROWS for x, _ in _points(s, value, "seconds")), default=0.0)
    return (3600.0, "hours of training") if seconds > 3600 * LONG else (60.0, "minutes of training")


def _draw(axes: Axes, systems: Sequence[System], value: str, against: str, unit: float) -> None:
    axes.grid(alpha=0.3)
    drawn = False
    for number, system in enumerate(systems):
        points = _points(system, value, against)
        x = [place / unit + (against == "epoch") for place, _ in points]  # epoch 0 is over when it is validated
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            x,
            [mean.mean for _, mean in points],
            color=colour,
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4.5,
            linewidth=1.4,
            label=system.label,
        )
        if len(system.runs) > 1:
            low = [mean.mean - (mean.deviation or 0) for _, mean in points]
            high = [mean.mean + (mean.deviation or 0) for _, mean in points]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        drawn = drawn or bool(points)
    if not drawn:
        axes.text(0.5, 0.5, "not logged", transform=axes.transAxes, ha="center", va="center", color="#606060")


def _points(system: System, value: str, against: str) -> list[tuple[float, Value]]:
    if value == "train/nll":
        return system.curve(lambda run: run.training_loss(against))
    return system.curve(lambda run: run.curve(value, against))


def _add_legend(page: Figure) -> None:
    """Below all axes, in as many columns as there is room for; the page grows by what it takes."""
    handles, labels = page.axes[0].get_legend_handles_labels()
    wrapped = ["\n".join(textwrap.wrap(label, WRAP)) for label in labels]
    for columns in range(min(4, len(labels)), 0, -1):
        legend = page.legend(handles, wrapped, loc="outside lower center", ncols=columns, frameon=False, handlelength=4)
        for text in legend.get_texts():
            text.set_parse_math(False)
        box = legend.get_window_extent()
        if box.width <= 0.95 * page.bbox.width or columns == 1:
            break
        legend.remove()
    page.set_size_inches(WIDTH, ROW * len(ROWS) + box.height / page.dpi)
