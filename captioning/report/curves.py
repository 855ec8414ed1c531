"""Learning curves: loss and validation CIDEr, against epochs and against time."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from captioning.report.systems import System

ROWS = (("val/nll", "loss per word (nats); dashed: training"), ("val/CIDEr", "validation CIDEr"))
AGAINST = (("epoch", "epochs", 1.0), ("seconds", "hours of training", 3600.0))
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which the colour-blind can tell apart."""


def save_curves(path: Path, systems: Sequence[System]) -> list[Path]:
    """Saves `path` with the suffixes `.png` and `.pdf`: a line for each run, a colour for each system."""
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(ROWS), len(AGAINST), squeeze=False)
    for row, (value, name) in zip(grid, ROWS, strict=True):
        for axes, (against, label, unit) in zip(row, AGAINST, strict=True):
            _draw(axes, systems, value, against, unit)
            axes.set_xlabel(label)
            axes.set_ylabel(name)
            axes.grid(alpha=0.3)
    handles, labels = grid[0][0].get_legend_handles_labels()
    columns = min(3, max(1, len(labels)))
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    paths = [path.with_suffix(suffix) for suffix in (".png", ".pdf")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels that are too many, or in other scripts
        for each in paths:
            figure.savefig(each, dpi=150)
    return paths


def _draw(axes: Axes, systems: Sequence[System], value: str, against: str, unit: float) -> None:
    drawn = False
    for number, system in enumerate(systems):
        colour = COLOURS[number % len(COLOURS)]
        for i, run in enumerate(system.runs):
            x, y = run.curve(value, against)
            label = system.label if i == 0 else None
            axes.plot(_places(x, against, unit), y, color=colour, marker=".", linewidth=1.3, label=label)
            if value == "val/nll":
                x, y = run.training_loss(against)
                axes.plot(_places(x, against, unit), y, color=colour, linewidth=0.9, linestyle="dashed")
            drawn = drawn or bool(x)
    if not drawn:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "not logged", transform=axes.transAxes, ha="center", va="center", color="#707070")


def _places(x: Sequence[float], against: str, unit: float) -> list[float]:
    return [place / unit + (1 if against == "epoch" else 0) for place in x]  # epoch 0 is over when it is validated
