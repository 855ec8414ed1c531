"""Differences between pairs of systems as text, with Holm's correction for all pairs of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from captioning.files import markdown_table, write_rows
from captioning.metrics.contrasts import ALPHA, BORROWED, IMAGES_ONLY, PAIRED
from captioning.metrics.table import score_called
from captioning.report.comparison import Compared, both_ways
from captioning.report.systems import System


def difference_tables(
    systems: Sequence[System], compared: Compared, first: str, names: Sequence[str]
) -> str:
    """The part of `table.md` on pairs: of `not_told_apart` by the first score, and a table."""
    note = (
        f"\nNot told apart: the difference in {first} has a p of {ALPHA:g} or more after Holm's "
        f"correction for all pairs ({len(compared)}). {interval_content(compared)}.\n"
    )
    if not names:
        return note
    rows = []
    for (one, other), by_score in compared.items():
        training = "; ".join(filter(None, {by_score[name].training: None for name in names}))
        label = f"{systems[one].full_label} - {systems[other].full_label}"
        row = [f"{label} ({training})" if training else label]
        for name in names:
            d = by_score[name]
            cell = f"{d.difference:+z.1f}"
            if d.p is not None:
                cell += f" [{d.low:+z.1f}, {d.high:+z.1f}] {format_p(d.p)}"
            row.append(f"**{cell}**" if d.told_apart else cell)
        rows.append(row)
    heads = ["systems"] + [score_called(name).heading for name in names]
    table = markdown_table(heads, rows)
    counts = ", ".join(
        f"{sum(by_score[name].told_apart for by_score in compared.values())} by {name}"
        for name in names
    )
    return (
        f"{note}\nDifference, 95 % interval and p; in bold, p is below {ALPHA:g} after Holm's "
        f"correction for all pairs by this score.\n\n{table}\n\n"
        f"Pairs with p below {ALPHA:g} after Holm's correction, by each score alone: {counts}, of "
        f"{len(compared)}. Without it, chance alone would give {ALPHA * len(compared):.1f} if all "
        "systems were equal.\n"
    )


def format_p(p: float) -> str:
    """Three decimals; smaller ones have no zeros that say nothing."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def interval_content(compared: Compared) -> str:
    """What the 95 % intervals of a table contain."""
    kinds = {difference.training for rows in compared.values() for difference in rows.values()}
    if kinds == {IMAGES_ONLY}:
        return f"95 % intervals, {IMAGES_ONLY}"
    text = "95 % intervals and p contain the choice of images and of training runs"
    if BORROWED in kinds:
        text += f"; a system of one run has the {BORROWED}"
    if PAIRED in kinds:
        text += f"; {PAIRED}"
    return f"{text}; some, {IMAGES_ONLY}" if IMAGES_ONLY in kinds else text


def not_told_apart(compared: Compared, name: str, systems: int) -> list[str]:
    """For each system the others that it is not told apart from, by numbers from 1.

    They differ with a corrected p of `ALPHA` or more by a score; empty if it was not compared.
    """
    found = []
    for place in range(systems):
        told_apart = {
            other + 1: rows[name].told_apart
            for (one, other), rows in both_ways(compared).items()
            if one == place
        }
        alike = [number for number, apart in sorted(told_apart.items()) if not apart]
        found.append("none" if told_apart and not alike else _spans(alike))
    return found


def _spans(numbers: Sequence[int]) -> str:
    """Write ascending numbers, with runs of them by their ends.

    >>> _spans([1, 2, 3, 5])
    '1-3, 5'
    """
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    spans = zip(starts, ends, strict=True)
    return ", ".join(f"{one}-{last}" if one < last else str(one) for one, last in spans)


def write_pairs(path: Path, systems: Sequence[System], compared: Compared) -> None:
    """Write a row per pair and score, unrounded; `adjusted` is p after Holm's correction."""
    rows = [
        {"system": systems[one].full_label, "minus": systems[other].full_label, "score": name}
        | asdict(difference)
        for (one, other), by_score in compared.items()
        for name, difference in by_score.items()
    ]
    write_rows(path, rows[0], rows)


def comparison_cells(
    rows: Mapping[str, Mapping[str, Any]], digits: int | None = None
) -> list[tuple[str, ...]]:
    """Format name, both numbers, difference, interval and p.

    The last two are empty where they are unknown.
    """
    cells: list[tuple[str, ...]] = []
    for name, row in rows.items():
        score = score_called(name)
        form = f"z.{score.digits if digits is None else digits}f"
        ours, theirs = f"{row['ours']:{form}}", f"{row['theirs']:{form}}"
        interval = p = ""
        if row.get("p") is not None:
            interval, p = f"[{row['low']:+{form}}, {row['high']:+{form}}]", format_p(row["p"])
        title = score.heading if digits is None else name
        cells.append((title, ours, theirs, f"{row['difference']:+{form}}", interval, p))
    return cells
