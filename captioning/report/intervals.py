"""What separates systems: how each differs from the best, with the intervals of the paired bootstrap."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from captioning.metrics.bootstrap import Difference
from captioning.report.differences import Compared
from captioning.report.drawing import any_letters, figure, save
from captioning.report.systems import System
from captioning.report.units import headed, printed

PANELS = ("CIDEr", "METEOR", "BLEU-4", "ROUGE-L", "SPICE")
"""What is drawn, of what was compared; the first of them says who is the best."""
WIDTH, HEAD, LINE, WRAP, TITLE = 9.0, 0.9, 0.17, 40, 100
"""Inches: of the page, of what is no row, of a line of a label; letters in a line of a label, and of the title."""
APART, ALIKE = "#d55e00", "#606060"


def save_intervals(path: Path, systems: Sequence[System], compared: Compared) -> list[Path]:
    """Saves `path` with the suffixes `.png` and `.pdf`; nothing where no two systems were compared.

    All are compared with the best of those that have the most runs, since one run may be the best by luck.
    """
    drawn = _drawn(systems, compared)
    return save(drawn, path) if drawn else []


def _drawn(systems: Sequence[System], compared: Compared) -> Figure | None:
    names = [name for name in PANELS if compared and all(name in found for *_, found in compared)]
    if not names:
        return None
    scores = {one: found[names[0]].ours for one, _, found in compared}
    scores |= {other: found[names[0]].theirs for _, other, found in compared}
    best = max(scores, key=lambda place: (len(systems[place].runs), scores[place]))
    others = {one: found for one, other, found in compared if other == best}
    others |= {other: {n: _turned(d) for n, d in found.items()} for one, other, found in compared if one == best}
    order = sorted(others, key=lambda place: -scores[place])
    labels = [textwrap.wrap(systems[place].label, WRAP) for place in order]
    rows = sum(1 + len(lines) for lines in labels)
    page = figure(WIDTH, HEAD + LINE * rows, ConstrainedLayoutEngine())
    (panels,) = page.subplots(1, len(names), sharey=True, squeeze=False)
    for name, axes in zip(names, panels, strict=True):
        _draw(axes, name, [others[place][name] for place in order])
    panels[0].set_yticks(range(len(order)), ["\n".join(lines) for lines in labels], parse_math=False)
    panels[0].set_ylim(len(order) - 0.5, -0.5)
    with any_letters():
        title = f"difference from {systems[best].label} with 95 % interval, grey where that holds 0"
        page.suptitle("\n".join(textwrap.wrap(title, TITLE)), parse_math=False, fontsize="medium")
    return page


def _draw(axes: Axes, name: str, rows: Sequence[Difference]) -> None:
    axes.axvline(0, color="#202020", linewidth=1)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel(f"{headed(name)}: {printed(name, rows[0].theirs)} at 0")
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
