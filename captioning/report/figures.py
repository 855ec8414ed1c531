"""Figures of a report: learning curves, and differences between systems with their intervals."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from captioning.metrics.bootstrap import Difference
from captioning.metrics.scorer import HEADLINE, score_called
from captioning.report.drawing import any_letters, figure
from captioning.report.systems import Compared, System, Value

ROWS = (
    ("train/nll", "training loss\n(nats per word)"),
    ("val/nll", "validation loss\n(nats per word)"),
    (f"val/{HEADLINE}", f"validation {HEADLINE}\n({score_called(HEADLINE).unit})"),
)
"""Of the learning curves: columns of `metrics.csv`, and their names."""
WIDTH, ROW, PAD = 9.0, 2.5, 0.1
"""Inches: of a figure; of a row of curves, without the legend; around axes."""
LONG = 2.0
"""Hours of training from which on the axis counts hours, not minutes."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which the colour-blind can tell apart."""
DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (7, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", "*", ">", "h")
"""As many as have no divisor in common with the colours: pairs repeat after 77 systems."""
WRAP, TITLE = 40, 100
"""Letters in a line of a label, and of a title."""
HEAD, LINE = 0.9, 0.17
"""Inches of a figure of differences: around its rows, and for each line of a label."""
APART, ALIKE = "#d55e00", "#606060"


def curves(systems: Sequence[System]) -> Figure:
    """Loss and validation score against epochs and time: each system's mean over seeds, and their deviation."""
    page = figure(WIDTH, ROW * len(ROWS), ConstrainedLayoutEngine(w_pad=PAD, h_pad=PAD))
    unit, time = _time_unit(systems)
    grid = page.subplots(len(ROWS), 2, sharex="col", sharey="row")
    for row, (value, name) in zip(grid, ROWS, strict=True):
        row[0].set_ylabel(name)
        _draw_curves(row[0], systems, value, "epoch", 1.0)
        _draw_curves(row[1], systems, value, "seconds", unit)
    grid[-1][0].xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes, name in zip(grid[-1], ("epochs", time), strict=True):
        axes.set_xlabel(name)
        if (end := axes.get_xlim()[1]) > 0:
            axes.set_xlim(0, end)
    with any_letters():
        _add_legend(page)
    return page


def _time_unit(systems: Sequence[System]) -> tuple[float, str]:
    """The seconds of the axis' unit, and its label."""
    seconds = max((x for s in systems for value, _ in ROWS for x, _ in _points(s, value, "seconds")), default=0.0)
    return (3600.0, "hours of training") if seconds > 3600 * LONG else (60.0, "minutes of training")


def _draw_curves(axes: Axes, systems: Sequence[System], value: str, against: str, unit: float) -> None:
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
            label=system.short,
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


def intervals(systems: Sequence[System], compared: Compared, names: Sequence[str]) -> Figure | None:
    """Differences by these scores, the main one first, from one system, with their 95 % intervals.

    All are compared with the best of those that have the most runs, since one run may be the best by luck; None where
    no two systems were compared.
    """
    names = [name for name in names if compared and all(name in found for found in compared.values())]
    names.sort(key=lambda name: name != HEADLINE)
    if not names:
        return None
    scores = {one: found[names[0]].ours for (one, _), found in compared.items()}
    scores |= {other: found[names[0]].theirs for (_, other), found in compared.items()}
    best = max(scores, key=lambda place: (len(systems[place].runs), scores[place]))
    others = {one: found for (one, other), found in compared.items() if other == best}
    others |= {
        other: {name: _turned(each) for name, each in found.items()}
        for (one, other), found in compared.items()
        if one == best
    }
    order = sorted(others, key=lambda place: -scores[place])
    labels = [textwrap.wrap(systems[place].short, WRAP) for place in order]
    rows = sum(1 + len(lines) for lines in labels)
    page = figure(WIDTH, HEAD + LINE * rows, ConstrainedLayoutEngine())
    (panels,) = page.subplots(1, len(names), sharey=True, squeeze=False)
    for name, axes in zip(names, panels, strict=True):
        _draw_differences(axes, name, [others[place][name] for place in order])
    panels[0].set_yticks(range(len(order)), ["\n".join(lines) for lines in labels], parse_math=False)
    panels[0].set_ylim(len(order) - 0.5, -0.5)
    with any_letters():
        title = f"difference from {systems[best].short} with 95 % interval, grey where that holds 0"
        page.suptitle("\n".join(textwrap.wrap(title, TITLE)), parse_math=False, fontsize="medium")
    return page


def _draw_differences(axes: Axes, name: str, rows: Sequence[Difference]) -> None:
    axes.axvline(0, color="#202020", linewidth=1)
    axes.grid(axis="x", alpha=0.3)
    score = score_called(name)
    axes.set_xlabel(f"{score.heading}: {score.printed(rows[0].theirs)} at 0")
    for place, found in enumerate(rows):
        colour = APART if found.low > 0 or found.high < 0 else ALIKE
        axes.plot([found.low, found.high], [place, place], color=colour, linewidth=1.6)
        axes.plot([found.difference], [place], color=colour, marker="o", markersize=4.5)


def _turned(found: Difference) -> Difference:
    return replace(
        found,
        ours=found.theirs,
        theirs=found.ours,
        difference=-found.difference,
        low=-found.high,
        high=-found.low,
    )
