"""Any two systems of a table, compared by the paired bootstrap over the images of their first runs."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from captioning.data.caption_files import ImageId, common_images, read_captions, read_references
from captioning.errors import CaptioningError
from captioning.metrics import Scorer
from captioning.metrics.bootstrap import Difference, paired_bootstrap
from captioning.metrics.scorer import Metric
from captioning.metrics.statistics import Statistics
from captioning.report.markdown import markdown_table
from captioning.report.systems import System
from captioning.report.units import headed

COLUMNS = ("systems", "score", "difference", "95 % interval", "p")


Compared = list[tuple[int, int, dict[str, Difference]]]
"""Two systems, by their places in the table, and how they differ score by score."""


def compare(
    systems: Sequence[System], metrics: Sequence[Metric], samples: int, seed: int
) -> tuple[Compared, list[str]]:
    """What any two systems differ by, and a line on each run and pair that is left out.

    Runs are compared whose `captions.jsonl` hold the same images with the same references, in whatever order.
    """
    tests: list[_Test] = []
    scored: list[tuple[int, _Test, Sequence[Statistics]]] = []
    compared: Compared = []
    left_out = []
    for place, system in enumerate(systems):
        file = system.runs[0].folder / "captions.jsonl"
        try:
            references, captions = read_references(file), read_captions(file)
            common_images(references, {str(file): captions}, common_only=False)
        except CaptioningError as error:
            left_out.append(str(error))
            continue
        test = next((test for test in tests if test.references == references), None)
        if test is None:
            tests.append(test := _Test(references, metrics))
        scored.append((place, test, test.statistics(captions)))
    for (one, test, ours), (other, others_test, theirs) in combinations(scored, 2):
        try:
            if test is not others_test:
                raise CaptioningError("their first runs were tested on different images or references")
            compared.append((one, other, paired_bootstrap(ours, theirs, samples, seed)))
        except CaptioningError as error:
            left_out.append(f"{systems[one].label} - {systems[other].label}: {error}")
    return compared, left_out


def differences(systems: Sequence[System], compared: Compared, samples: int) -> str:
    """The part of `table.md` that compares them."""
    rows = [
        (
            f"{systems[one].label} - {systems[other].label}",
            headed(name),
            f"{d.difference:+z.1f}",
            f"[{d.low:+z.1f}, {d.high:+z.1f}]",
            f"{d.p:.3f}",
        )
        for one, other, found in compared
        for name, d in found.items()
    ]
    title = f"Paired bootstrap over images, {samples} samples, first runs:"
    return f"\n{title}\n\n{markdown_table(COLUMNS, rows)}\n" if rows else ""


class _Test:
    """What runs were tested on: images in one order, with their references."""

    def __init__(self, references: Mapping[ImageId, list[str]], metrics: Sequence[Metric]) -> None:
        self.references = references
        self._scorer = Scorer(list(references.values()), metrics)

    def statistics(self, captions: Mapping[ImageId, str]) -> Sequence[Statistics]:
        return self._scorer.score({i: captions[image] for i, image in enumerate(self.references)}).statistics
