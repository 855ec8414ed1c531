"""The page's table: a row for each system and each published result, columns in groups, every cell with its number."""

from collections.abc import Sequence
from dataclasses import dataclass

from captioning.metrics.scorer import ATTENTION, GROUPS, score_called
from captioning.metrics.statistics import NO_PENALTY
from captioning.report.page.results import ALL_SCORES
from captioning.report.published import Published
from captioning.report.systems import System, Value, mean
from captioning.report.table import best_scores, columns

EMPTY = ""
COST = "cost of training"
COSTS = ("parameters", "seconds trained", "captions per second")


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `group` says with which others it is shown."""

    name: str
    group: str

    @property
    def heading(self) -> str:
        """What its group says already is left out."""
        name = self.name.removesuffix(NO_PENALTY)
        return name.removeprefix("attention ") if self.group == ATTENTION else name


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a cell, the number by which rows are sorted, and whether it is the best of its column."""

    text: str = EMPTY
    number: float | None = None
    best: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `place` is that of our system in the table, a published one has the `caveat` instead."""

    label: str
    cells: list[Cell]
    place: int | None = None
    runs: str = EMPTY
    caveat: str = EMPTY
    device: str = EMPTY


def table(
    systems: Sequence[System], published: Sequence[Published], cider: float | None
) -> tuple[list[Column], list[Row]]:
    """Columns in which there is something, and the rows: our systems, then what is quoted."""
    values = [{**columns(system, cider), **_further(system)} for system in systems]
    shown = [
        Column(name, _group(name))
        for name in dict.fromkeys(name for row in values for name in row)
        if any(row.get(name) for row in values) or any(name in row.scores for row in published)
    ]
    shown.sort(key=lambda column: (*GROUPS, COST).index(column.group))
    best = best_scores(systems)
    ours = [
        Row(
            system.label,
            [_cell(row.get(column.name), column, system in best.get(column.name, ())) for column in shown],
            place,
            system.counted,
            device=", ".join(sorted({run.provenance.device for run in system.runs})),
        )
        for place, (system, row) in enumerate(zip(systems, values, strict=True))
    ]
    theirs = [
        Row(
            f"{row.system}, {row.source}",
            [_cell(mean([row.scores.get(c.name)]), c) for c in shown],
            caveat=row.caveat,
        )
        for row in published
    ]
    return shown, ours + theirs


def _further(system: System) -> dict[str, Value | None]:
    """Columns of speed, and of whatever else the other tables do not have."""
    scored = {name for run in system.runs for name in run.scores if name not in ALL_SCORES}
    return {
        "seconds trained": system.provenance(lambda run: run.provenance.seconds_trained),
        "captions per second": system.provenance(lambda run: run.captions_per_second),
        **{name: system.score(name) for name in sorted(scored)},
    }


def _group(name: str) -> str:
    return COST if name in COSTS or name.startswith("seconds to ") else score_called(name).group


def _cell(value: Value | None, column: Column, best: bool = False) -> Cell:
    if value is None:
        return Cell()
    digits = 0 if column.group == COST else score_called(column.name).digits
    known = value.deviation is not None and (digits or value.deviation)  # whole numbers may be the same in all runs
    deviation = f" ± {value.deviation:,.{digits}f}" if known else ""
    return Cell(f"{value.mean:,.{digits}f}{deviation}", value.mean, best)
