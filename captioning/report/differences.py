"""Any two systems of a table, compared by the paired bootstrap over the images and runs of their tests."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from captioning.config.explain import explain
from captioning.data.readers.captions import ImageId, common_images, read_captions, read_references
from captioning.errors import CaptioningError
from captioning.metrics import Scorer
from captioning.metrics.bootstrap import Difference, Resampled, difference, resample
from captioning.metrics.scorer import Metric
from captioning.metrics.statistics import NO_PENALTY, Statistics
from captioning.report.markdown import markdown_table
from captioning.report.systems import System
from captioning.report.units import headed

Compared = list[tuple[int, int, dict[str, Difference]]]
"""Two systems, by their places in the table, and how they differ score by score."""


def compare(
    systems: Sequence[System], metrics: Sequence[Metric], samples: int, seed: int
) -> tuple[Compared, list[str]]:
    """What any two systems differ by, and a line on each system and pair that is left out.

    Systems are compared whose `captions.jsonl` hold the same images with the same references, in whatever order.
    """
    tests: list[_Test] = []
    scored: list[tuple[int, _Test, Resampled]] = []
    compared: Compared = []
    left_out = []
    for place, system in enumerate(systems):
        try:
            runs = [_answers(run.folder / "captions.jsonl") for run in system.runs]
            references = runs[0][0]
            if any(others != references for others, _ in runs):
                raise CaptioningError(f"{system.label}: its runs were tested on different images or references")
        except (CaptioningError, OSError, ValueError) as error:
            left_out.append(explain(error))
            continue
        test = next((test for test in tests if test.references == references), None)
        if test is None:
            tests.append(test := _Test(references, metrics))
        statistics = [test.statistics(captions) for _, captions in runs]
        try:
            scored.append((place, test, resample(statistics, samples, seed, place)))
        except CaptioningError as error:
            left_out.append(f"{system.label}: {error}")
    for (one, test, ours), (other, others_test, theirs) in combinations(scored, 2):
        if test is others_test:
            compared.append((one, other, difference(ours, theirs)))
        else:
            names = f"{systems[one].label} - {systems[other].label}"
            left_out.append(f"{names}: they were tested on different images or references")
    return compared, left_out


def differences(systems: Sequence[System], compared: Compared, samples: int) -> str:
    """The part of `table.md` that compares them."""
    if not compared:
        return ""
    names = [name for name in compared[0][2] if not name.endswith(NO_PENALTY)]
    rows = [
        (f"{systems[one].label} - {systems[other].label}", *(_shown(found[name]) for name in names))
        for one, other, found in compared
    ]
    title = f"Paired bootstrap over images and, of several, runs ({samples} samples): difference, 95 % interval, p."
    return f"\n{title}\n\n{markdown_table(('systems', *map(headed, names)), rows)}\n"


def _shown(found: Difference) -> str:
    return f"{found.difference:+z.1f} [{found.low:+z.1f}, {found.high:+z.1f}] {found.p:.3f}"


def _answers(file: Path) -> tuple[dict[ImageId, list[str]], dict[ImageId, str]]:
    """References and captions by image."""
    references, captions = read_references(file), read_captions(file)
    common_images(references, {str(file): captions}, common_only=False)
    return references, captions


class _Test:
    """What runs were tested on: images in one order, with their references."""

    def __init__(self, references: Mapping[ImageId, list[str]], metrics: Sequence[Metric]) -> None:
        self.references = references
        self._scorer = Scorer(list(references.values()), metrics)

    def statistics(self, captions: Mapping[ImageId, str]) -> Sequence[Statistics]:
        return self._scorer.score({i: captions[image] for i, image in enumerate(self.references)}).statistics
