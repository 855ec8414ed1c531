"""Paired bootstrap between any two systems of a table."""

from collections.abc import Sequence
from itertools import combinations

from captioning.errors import CaptioningError
from captioning.metrics import SCORES, Scorer
from captioning.metrics.bootstrap import Resampled, difference, resample
from captioning.metrics.scorer import scores_of
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics
from captioning.report.runs import Caption, ImageId
from captioning.report.systems import Compared, System

Lines = dict[ImageId, Caption]


def compare(systems: Sequence[System], metrics: Sequence[str], samples: int, seed: int) -> tuple[Compared, list[str]]:
    """How any two systems differ, and a line on each system and pair that `metrics` could not compare.

    Systems are compared whose `captions.jsonl` hold the same images with the same references, in whatever order. The
    `metrics` are computed again; beside them stand the means of image scores that `captions.jsonl` has.
    """
    again = scores_of(metrics)
    means = [score.name for score in SCORES.values() if score.mean and score.name not in again]
    tests: list[tuple[dict[ImageId, list[str]], Scorer | None]] = []
    scored: list[tuple[int, int, Resampled]] = []
    left_out = []
    for place, system in enumerate(systems):
        try:
            runs = [{line.image_id: line for line in run.captions} for run in system.runs]
            references, *others = ({image: line.references for image, line in lines.items()} for lines in runs)
            if any(other != references for other in others) or len(references) < 2:
                raise CaptioningError("its runs were tested on different images or references, or on less than two")
            test = next((number for number, (known, _) in enumerate(tests) if known == references), len(tests))
            if test == len(tests):
                tests.append((references, Scorer(list(references.values()), metrics) if metrics else None))
            order, scorer = tests[test]
            if statistics := _statistics([[lines[image] for image in order] for lines in runs], means, scorer):
                scored.append((place, test, resample(statistics, samples, seed, place)))
        except CaptioningError as error:
            left_out.append(f"{system.label}: {error}")
    compared: Compared = {}
    for (one, test, ours), (other, others_test, theirs) in combinations(scored, 2):
        if test != others_test:
            names = f"{systems[one].label} - {systems[other].label}"
            left_out.append(f"{names}: they were tested on different images or references")
        elif found := difference(ours, theirs):
            compared[one, other] = found
    return compared, left_out if metrics else []


def _statistics(
    runs: Sequence[Sequence[Caption]], means: Sequence[str], scorer: Scorer | None
) -> list[list[Statistics]]:
    """Of each run: of the scores that all of its images have, and of those computed again; none: no runs."""
    kept = [name for name in means if all(line.scores.get(name) is not None for lines in runs for line in lines)]
    found: list[list[Statistics]] = []
    for lines in runs:
        of_images = [mean_statistics(name, [(line.scores[name] or 0) / PERCENT for line in lines]) for name in kept]
        again = scorer.score(dict(enumerate(line.caption for line in lines))).statistics if scorer else ()
        found.append([*of_images, *again])
    return found if found[0] else []
