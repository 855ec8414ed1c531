"""Paired bootstrap between any two systems of a table."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from captioning.errors import CaptioningError
from captioning.metrics import SCORES, Scorer
from captioning.metrics.bootstrap import Resampled, difference, resample
from captioning.metrics.scorer import scores_of
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics
from captioning.report.runs import Caption, ImageId, Run
from captioning.report.systems import Compared, System

References = Mapping[ImageId, list[str]]


def compare(systems: Sequence[System], metrics: Sequence[str], samples: int, seed: int) -> tuple[Compared, list[str]]:
    """How any two systems differ, and a line on each system and pair that `metrics` could not compare.

    Systems are compared whose `captions.jsonl` hold the same images with the same references, in whatever order. The
    `metrics` are computed again; beside them stand the means of image scores that `captions.jsonl` has.
    """
    tests: list[_Test] = []
    scored: list[tuple[int, _Test, Resampled]] = []
    compared: Compared = {}
    left_out = []
    for place, system in enumerate(systems):
        try:
            runs = [_by_image(run) for run in system.runs]
            references = {image_id: line.references for image_id, line in runs[0].items()}
            if any({i: line.references for i, line in each.items()} != references for each in runs):
                raise CaptioningError(f"{system.label}: its runs were tested on different images or references")
            if len(references) < 2:
                raise CaptioningError(f"{system.label}: a bootstrap over one image says nothing")
            test = next((test for test in tests if test.references == references), None)
            if test is None:
                tests.append(test := _Test(references, metrics))
            if statistics := test.statistics(runs):
                scored.append((place, test, resample(statistics, samples, seed, place)))
        except CaptioningError as error:
            left_out.append(str(error))
    for (one, test, ours), (other, others_test, theirs) in combinations(scored, 2):
        if test is others_test:
            if found := difference(ours, theirs):
                compared[one, other] = found
        else:
            names = f"{systems[one].label} - {systems[other].label}"
            left_out.append(f"{names}: they were tested on different images or references")
    return compared, left_out if metrics else []


def _by_image(run: Run) -> dict[ImageId, Caption]:
    if not run.captions:
        raise CaptioningError(f"{run.folder / 'captions.jsonl'} has no images")
    return {line.image_id: line for line in run.captions}


class _Test:
    """Images in one order, with the references that runs were tested on."""

    def __init__(self, references: References, metrics: Sequence[str]) -> None:
        self.references = references
        self._scorer = Scorer(list(references.values()), metrics) if metrics else None
        again = scores_of(metrics)
        self._means = [score.name for score in SCORES.values() if score.mean and score.name not in again]

    def statistics(self, runs: Sequence[Mapping[ImageId, Caption]]) -> list[list[Statistics]]:
        """Of each run: of the scores that all of its images have, and of those computed again; none: no runs."""
        every = [[run[image_id] for image_id in self.references] for run in runs]
        kept = [
            name for name in self._means if all(line.scores.get(name) is not None for lines in every for line in lines)
        ]
        found = []
        for lines in every:
            means = [_mean(name, lines) for name in kept]
            scored: Any = (
                ()
                if self._scorer is None
                else self._scorer.score({place: line.caption for place, line in enumerate(lines)}).statistics
            )
            found.append([*means, *scored])
        return found if found[0] else []


def _mean(name: str, lines: Sequence[Caption]) -> Statistics:
    return mean_statistics(name, [(line.scores[name] or 0) / PERCENT for line in lines])
