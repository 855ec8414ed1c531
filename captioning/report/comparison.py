"""Paired comparisons of systems by their captions of the same images."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations

from captioning.data.readers.captions import CaptionRecord
from captioning.metrics.contrasts import Difference, Measured, compare, corrected, measure
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics

# How two systems, by their places in a table, differ score by score.
Compared = dict[tuple[int, int], dict[str, Difference]]


def compare_systems(
    systems: Mapping[int, Sequence[Sequence[Statistics]]],
    lenders: Sequence[Mapping[str, Measured]] = (),
    groups: Sequence[str] = (),
    pairs: Mapping[int, Sequence[object]] | None = None,
) -> Compared:
    """Compare any two systems, each with the statistics of its runs on the same images.

    Those of one run take the variance of training from the others and from `lenders`. `groups` are
    those of the images, and `pairs` what the runs of each system share with others, see `measure`.
    """
    shared = pairs or {}
    measured = {
        index: measure(runs, groups, pairs=shared.get(index, ())) for index, runs in systems.items()
    }
    every = [*measured.values(), *lenders]
    return {
        (one, other): rows
        for one, other in combinations(measured, 2)
        if (rows := compare(measured[one], measured[other], every))
    }


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
