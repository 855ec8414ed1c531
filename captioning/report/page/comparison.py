"""Every two systems of a table, compared by the paired bootstrap, ready to be looked up."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from captioning.metrics.bootstrap import Difference, Resampled, difference, resample
from captioning.metrics.scorer import HEADLINE, SCORES
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics
from captioning.report.page.tested import Described
from captioning.report.systems import System

MEANS = (HEADLINE, *(score.name for score in SCORES.values() if score.mean and score.name != HEADLINE))
"""Scores of a corpus that are means of its images' scores, which `captions.jsonl` has."""
Pairs = dict[str, dict[str, list[float]]]
"""By `one-other`, their places in the table, and by score: difference, ends of its interval, p."""


def compare_means(images: Sequence[Described], systems: Sequence[System], samples: int, seed: int) -> Pairs:
    """The scores that need no scorer to be compared, of any two systems whose runs were all tested on the same."""
    found: dict[int, tuple[list[Described], dict[str, Resampled]]] = {}
    for place, system in enumerate(systems):
        tested = [image for image in images if place in image.scores]
        if len(tested) < 2 or any(len(image.scores[place]) != len(system.runs) for image in tested):
            continue
        runs = list(zip(*(image.scores[place] for image in tested), strict=True))
        names = [name for name in MEANS if all(scores.get(name) is not None for run in runs for scores in run)]
        found[place] = (
            tested,
            {name: resample([_mean(name, run) for run in runs], samples, seed, place) for name in names},
        )
    pairs: Pairs = {}
    for (one, (these, ours)), (other, (those, theirs)) in combinations(found.items(), 2):
        names = [name for name in ours if name in theirs]
        if these == those and names:
            pairs[f"{one}-{other}"] = {}
            for name in names:
                pairs[f"{one}-{other}"] |= _numbers(difference(ours[name], theirs[name]))
    return pairs


def _mean(name: str, scores: Sequence[Mapping[str, Any]]) -> list[Statistics]:
    return [mean_statistics(name, [each[name] / PERCENT for each in scores])]


def _numbers(found: Mapping[str, Difference]) -> dict[str, list[float]]:
    return {name: [round(n, 4) for n in (d.difference, d.low, d.high, d.p)] for name, d in found.items()}


def joined(pairs: Pairs, compared: Sequence[tuple[int, int, Mapping[str, Difference]]]) -> Pairs:
    """With what else two systems were compared by (`captioning.report.differences`)."""
    for one, other, found in compared:
        pairs.setdefault(f"{one}-{other}", {}).update(_numbers(found))
    return pairs
