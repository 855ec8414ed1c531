"""Every two systems of a table, compared by the paired bootstrap, ready to be looked up."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from captioning.metrics.bootstrap import Difference, paired_bootstrap
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics
from captioning.report.page.tested import Described

MEANS = ("CIDEr", "ROUGE-L")
"""Scores of a corpus that are means of its images' scores, which `captions.jsonl` has."""
Pairs = dict[str, dict[str, list[float]]]
"""By `one-other`, their places in the table, and by score: difference, ends of its interval, p."""


def compare_means(images: Sequence[Described], systems: int, samples: int, seed: int) -> Pairs:
    """The scores that need no scorer to be compared, for those two of which one was tested on the same as the other."""
    pairs: Pairs = {}
    for one, other in combinations(range(systems), 2):
        both = [(i.answers[one].scores, i.answers[other].scores) for i in images if {one, other} <= i.answers.keys()]
        alone = sum((one in image.answers) != (other in image.answers) for image in images)
        names = [name for name in MEANS if both and all(s.get(name) is not None for two in both for s in two)]
        if alone or len(both) < 2 or not names:
            continue
        ours, theirs = (_statistics(names, [two[side] for two in both]) for side in (0, 1))
        pairs[f"{one}-{other}"] = _numbers(paired_bootstrap(ours, theirs, samples, seed))
    return pairs


def _statistics(names: Sequence[str], scores: Sequence[Mapping[str, Any]]) -> list[Statistics]:
    return [mean_statistics(name, [each[name] / PERCENT for each in scores]) for name in names]


def _numbers(found: Mapping[str, Difference]) -> dict[str, list[float]]:
    return {name: [round(n, 4) for n in (d.difference, d.low, d.high, d.p)] for name, d in found.items()}


def joined(pairs: Pairs, compared: Sequence[tuple[int, int, Mapping[str, Difference]]]) -> Pairs:
    """With what else two systems were compared by (`captioning.report.differences`)."""
    for one, other, found in compared:
        pairs.setdefault(f"{one}-{other}", {}).update(_numbers(found))
    return pairs
