"""Paired comparisons of systems by captions of the same images, also as text.

P-values of a table have Holm's correction for all its pairs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from captioning.data.readers.captions import CaptionRecord
from captioning.data.readers.parsing import ImageId
from captioning.errors import CaptioningError
from captioning.files import markdown_table, write_rows
from captioning.metrics import SCORES, Scorer
from captioning.metrics.contrasts import (
    ALPHA,
    BORROWED,
    IMAGES_ONLY,
    PAIRED,
    Difference,
    compare,
    corrected,
    measure,
)
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics
from captioning.metrics.table import HEADLINE, score_called
from captioning.report.runs import in_pairs
from captioning.report.systems import System

# How two systems, by their places in a table, differ score by score.
Compared = dict[tuple[int, int], dict[str, Difference]]
Captions = Mapping[ImageId, CaptionRecord]


@dataclass
class Test:
    """Images with references in a language, and the systems that were tested on them."""

    references: dict[ImageId, list[str]]
    scorer: Scorer | None
    # statistics of each run, and what it shares with others (`in_pairs`), by place
    systems: dict[int, tuple[list[list[Statistics]], Sequence[object]]] = field(
        default_factory=dict
    )
    groups: list[str] = field(default_factory=list)  # of the images, if a system has them

    def add(self, index: int, runs: Sequence[Captions], pairs: Sequence[object]) -> None:
        """Compute the metrics again for the runs of a system, beside the means that they have."""
        ordered = [[run[image] for image in self.references] for run in runs]
        groups = [record.group for record in ordered[0]]
        if any(groups):
            self.groups = groups
        means = [score.name for score in SCORES.values() if score.mean]
        scored = with_means([*map(self.score, ordered)], ordered, means)
        if scored[0]:
            self.systems[index] = scored, pairs

    def score(self, records: Sequence[CaptionRecord]) -> Sequence[Statistics]:
        captions = dict(enumerate(record.captions for record in records))
        return self.scorer.score(captions).statistics if self.scorer else ()

    def compared(self) -> Compared:
        """All pairs of its systems; those of one run take the variance of training from others."""
        measured = {
            index: measure(runs, self.groups, pairs=pairs)
            for index, (runs, pairs) in self.systems.items()
        }
        every = list(measured.values())
        return {
            (one, other): compare(measured[one], measured[other], every)
            for one, other in combinations(measured, 2)
        }


def compare_runs(
    systems: Sequence[System],
    metrics: Sequence[str],
    modules: Sequence[str] = (),
    paired: str | None = None,
) -> tuple[Compared, list[str]]:
    """Compare all pairs of systems; return a line for each that could not be compared.

    Systems are compared whose `captions.jsonl` hold the same images with the same references, in
    whatever order. The `metrics` are computed again; beside them stand the means of image scores
    that `captions.jsonl` has. Functions of the user that split captions are in `modules`. Runs with
    equal values of the setting `paired` belong together, see `contrast`.
    """
    tests = {}
    left_out = []
    for index, system in enumerate(systems):
        try:
            ordered, shared = in_pairs(system.runs, paired)
            runs = [{record.image_id: record for record in run.captions} for run in ordered]
            language = system.runs[0].spoken(modules)
            key = language, _tested(runs)
            if key not in tests:
                references = {image: record.references for image, record in runs[0].items()}
                texts = list(references.values())
                scorer = Scorer(texts, metrics, language=language) if metrics else None
                tests[key] = Test(references, scorer)
            tests[key].add(index, runs, shared)
        except CaptioningError as error:
            left_out.append(f"{system.full_label}: {error}")
    compared: Compared = {}
    for test in tests.values():
        compared |= {pair: rows for pair, rows in test.compared().items() if rows}
    for one, other in combinations(sorted(chain(*(test.systems for test in tests.values()))), 2):
        if (one, other) not in compared:
            names = f"{systems[one].full_label} - {systems[other].full_label}"
            left_out.append(f"{names}: they were tested on different images or references")
    correct(compared)
    return dict(sorted(compared.items())), left_out if metrics else []


def _tested(runs: Sequence[Captions]) -> object:
    """The images of a system's test with their references, in whatever order they are."""
    every = {
        frozenset((image, *record.references) for image, record in run.items()) for run in runs
    }
    if len(every) > 1 or len(runs[0]) < 2:
        raise CaptioningError(
            "its runs were tested on different images or references, or on less than two"
        )
    return every.pop()


def compared_scores(systems: Sequence[System], compared: Compared) -> list[str]:
    """The scores by which all pairs were compared, the monitored one first, then `HEADLINE`."""
    monitor = systems[0].runs[0].recorded.get("callbacks.checkpoint.monitor")
    rows = list(compared.values())
    names = [name for name in chain(*rows[:1]) if all(name in row for row in rows)]
    return sorted(names, key=lambda name: (f"val/{name}" != monitor, name != HEADLINE))


def both_ways(compared: Compared) -> Compared:
    """Each pair also with its systems exchanged."""
    return compared | {
        (other, one): {name: row.reversed for name, row in rows.items()}
        for (one, other), rows in compared.items()
    }


def correct(compared: Compared) -> None:
    """Correct p in place for the number of pairs of a table, each score by itself."""
    for name in {*chain(*compared.values())}:
        family = {pair: rows[name] for pair, rows in compared.items() if name in rows}
        for pair, difference in corrected(family).items():
            compared[pair][name] = difference


def with_means(
    computed: Sequence[Sequence[Statistics]],
    runs: Sequence[Sequence[CaptionRecord]],
    names: Iterable[str],
) -> list[list[Statistics]]:
    """What was computed of a system's runs, and means of scores that all their records have."""
    every = [{metric.names for metric in statistics} for statistics in computed]
    shared = set.intersection(*every)  # a metric may have failed for one of the runs
    extended = [[m for m in statistics if m.names in shared] for statistics in computed]
    known = set(chain(*shared))
    for name in names:
        means = [[record.scores.get(name) for record in records] for records in runs]
        if name in known or any(None in scores for scores in means):
            continue
        for statistics, scores in zip(extended, means, strict=True):
            shares = [(score or 0) / PERCENT for score in scores]
            statistics.append(mean_statistics({name: shares}))
    return extended


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
) -> Sequence[tuple[str, ...]]:
    """Format name, both numbers, difference, interval and p.

    The last two are empty where they are unknown.
    """
    cells = []
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
