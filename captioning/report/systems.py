"""Systems (runs that differ in their seeds alone) and their pairwise comparisons."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from pathlib import Path

from captioning.data.words import Language
from captioning.errors import CaptioningError, quoted
from captioning.metrics import SCORES, Scorer
from captioning.metrics.bootstrap import Difference, Resampled, difference, resample
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics
from captioning.metrics.table import HEADLINE, scores_of
from captioning.report.runs import Run
from captioning.runs.captions import CaptionRecord, ImageId
from captioning.runs.settings import is_in

# How two systems, by their places in a table, differ score by score.
Compared = dict[tuple[int, int], dict[str, Difference]]
FEW = 3  # settings that a label has room for


@dataclass(frozen=True, slots=True)
class Value:
    """A mean over the runs that have it."""

    mean: float
    deviation: float | None = (
        None  # standard deviation of a sample (divisor n - 1); None for one run
    )


@dataclass(frozen=True, slots=True)
class System:
    """Runs that differ only in their seed."""

    # The model's title, and in brackets its further choices and the settings in which systems of
    # this model differ; of many as few as tell the systems apart, and nothing where that is the
    # name of most runs. A test of a part of the split is marked, `320 of 1,000`.
    label: str
    runs: tuple[Run, ...]

    @property
    def short(self) -> str:
        """The label without names of settings, for narrow places."""
        return self.label.replace("(name=", "(").replace(", ...)", ")")

    @property
    def whole(self) -> bool:
        """All its runs were tested on all of the split."""
        return not any(run.part for run in self.runs)

    @property
    def counted(self) -> str:
        """The number of runs, with their seeds."""
        seeds = ", ".join(str(run.seed) for run in self.runs)
        return f"{len(self.runs)} (seed{'s' if len(self.runs) > 1 else ''} {seeds})"

    @property
    def devices(self) -> list[str]:
        return sorted({run.provenance.device for run in self.runs})

    def mean(self, read: Callable[[Run], float | None]) -> Value | None:
        """Of a number that runs may tell; None where no run does."""
        return mean(map(read, self.runs))

    def score(self, name: str) -> Value | None:
        """Of the test split; None where no run has it."""
        return self.mean(lambda run: run.scores.get(name))

    def curve(self, value: str, against: str) -> list[tuple[float, float, float]]:
        """Logged values, validation by validation: mean place, mean of the runs' values there,
        their deviation.
        """
        points = []
        for row in zip_longest(
            *(zip(*run.curve(value, against), strict=True) for run in self.runs)
        ):
            places, values = zip(*(point for point in row if point is not None), strict=True)
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            points.append((statistics.fmean(places), statistics.fmean(values), deviation))
        return points


def within_seeds(one: System, other: System, name: str, difference: float) -> bool:
    """Return True for a difference of a score that is no larger than its standard deviation over
    either one's seeds.
    """
    values = (system.score(name) for system in (one, other))
    spread = [value.deviation for value in values if value and value.deviation is not None]
    return bool(spread) and abs(difference) <= max(spread)


def mean(values: Iterable[float | None]) -> Value | None:
    """Of the finite numbers among them; None where there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return (
        Value(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)
        if known
        else None
    )


def newest(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The run of each system and seed that was tested last, and a line for each other one."""

    def same(run: Run) -> object:
        return run.model, run.seed, run.provenance.data_digest, tuple(sorted(run.settings.items()))

    last: dict[object, Path] = {}
    for run in sorted(runs, key=lambda run: run.tested):
        last[same(run)] = run.folder
    kept = [run for run in runs if last[same(run)] == run.folder]
    others = [run for run in runs if last[same(run)] != run.folder]
    return kept, [
        f"{run.folder}: {last[same(run)]} is of the same system and seed, and newer"
        for run in others
    ]


def group(runs: Iterable[Run]) -> list[System]:
    """Group runs into systems, best first; partially tested ones and those without `HEADLINE`
    last.
    """
    runs = list(runs)
    names = Counter(run.name for run in runs)
    usual = next((name for name, number in names.items() if 2 * number > len(runs)), None)
    models: dict[str, dict[tuple[tuple[str, str], ...], list[Run]]] = {}
    for run in runs:
        models.setdefault(run.model, {}).setdefault(tuple(sorted(run.settings.items())), []).append(
            run
        )
    systems: list[System] = []
    for model, variants in models.items():
        name = next(iter(variants.values()))[0].title or model
        for shown, members in zip(
            _told_apart(list(variants.values()), usual), variants.values(), strict=True
        ):
            label = quoted(f"{name} ({', '.join(shown)})" if shown else name)
            parts = dict.fromkeys(run.part for run in members if run.part)
            label += f" [test images: {'; '.join(parts)}]" if parts else ""
            same = sum(
                system.label.partition(" #")[0] == label for system in systems
            )  # so long that it was cut
            systems.append(System(f"{label} #{same + 1}" if same else label, tuple(members)))
    return sorted(systems, key=_rank)


def _told_apart(variants: Sequence[Sequence[Run]], usual: str | None) -> list[list[str]]:
    """What the label of each variant of a model says: its choices, and what else it takes to tell
    them apart.
    """
    chosen = [
        {key: value for run in runs for key, value in run.choices.items()} for runs in variants
    ]
    every = [choices | runs[0].settings for runs, choices in zip(variants, chosen, strict=True)]
    names = sorted(
        {key for choices in chosen for key in choices}, key=lambda key: ("." in key, key)
    )
    for key in names:  # a system's own value has no name
        plain = [
            settings for settings, choices in zip(every, chosen, strict=True) if key not in choices
        ]
        if len({settings.get(key) for settings in plain}) < 2:
            for settings in plain:
                settings.pop(key, None)
    keys = sorted({key for settings in every for key in settings}.difference(names))
    differing = [key for key in keys if len({settings.get(key) for settings in every}) > 1]
    strip_extra_keys = [*names, *(f"model.{name}" for name in names), "model._target_"]

    def follows(key: str) -> bool:
        """Whether a setting of a part differs only where the choices do."""
        pairs = {
            (tuple(choices.items()), settings.get(key))
            for choices, settings in zip(chosen, every, strict=True)
        }
        return is_in(key, strip_extra_keys) and len(pairs) == len({choices for choices, _ in pairs})

    others = [key for key in differing if not follows(key)]
    telling = others if len(others) <= FEW else _telling(every, differing, names)
    found = []
    for runs, settings in zip(variants, every, strict=True):
        told = [] if telling == ["name"] and runs[0].name == usual else telling
        shown = [
            f"{key}={settings[key].strip(chr(39))}" for key in (*names, *told) if key in settings
        ]
        found.append(
            shown + ["..."] * (bool(shown) and told == telling and len(telling) < len(others))
        )
    return found


def _rank(system: System) -> tuple[bool, float]:
    score = system.score(HEADLINE)
    return not system.whole, math.inf if score is None else -score.mean


def _telling(
    variants: Sequence[dict[str, str]], keys: Sequence[str], known: Sequence[str]
) -> list[str]:
    """Choose a few `keys` that distinguish `variants` beside `known` ones; the name alone if it
    does as well.
    """
    chosen: list[str] = []

    def apart(key: str) -> tuple[int, bool, int]:
        seen = {tuple(variant.get(each) for each in (*known, *chosen, key)) for variant in variants}
        return len(seen), key == "name", -len(key)

    while len({tuple(variant.get(key) for key in (*known, *chosen)) for variant in variants}) < len(
        variants
    ):
        chosen.append(max(keys, key=apart))
    return chosen


def compare(
    systems: Sequence[System],
    metrics: Sequence[str],
    samples: int,
    seed: int,
    modules: Sequence[str] = (),
) -> tuple[Compared, list[str]]:
    """Compare all pairs of systems; return a line for each that could not be compared.

    Systems are compared whose `captions.jsonl` hold the same images with the same references, in
    whatever order. The `metrics` are computed again; beside them stand the means of image scores
    that `captions.jsonl` has. Functions of the user that split captions are in `modules`.
    """
    again = scores_of(metrics)
    means = [score.name for score in SCORES.values() if score.mean and score.name not in again]
    tests: list[tuple[dict[ImageId, list[str]], Language, Scorer | None]] = []
    scored: list[tuple[int, int, Resampled]] = []
    left_out = []
    for place, system in enumerate(systems):
        try:
            runs = [{line.image_id: line for line in run.captions} for run in system.runs]
            references, *others = (
                {image: line.references for image, line in lines.items()} for lines in runs
            )
            if any(other != references for other in others) or len(references) < 2:
                raise CaptioningError(
                    "its runs were tested on different images or references, or on less than two"
                )
            first = system.runs[0]
            language = Language.of({"language": first.language, "tokens": first.tokens}, modules)
            same = (
                number for number, known in enumerate(tests) if known[:2] == (references, language)
            )
            test = next(same, len(tests))
            if test == len(tests):
                scorer = (
                    Scorer(list(references.values()), metrics, language=language)
                    if metrics
                    else None
                )
                tests.append((references, language, scorer))
            order, _, scorer = tests[test]
            if kept := _statistics(
                [[lines[image] for image in order] for lines in runs], means, scorer
            ):
                scored.append((place, test, resample(kept, samples, seed, place)))
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
    runs: Sequence[Sequence[CaptionRecord]], means: Sequence[str], scorer: Scorer | None
) -> list[list[Statistics]]:
    """Of each run: of the scores that all of its images have, and of those computed again; none: no
    runs.
    """
    kept = [
        name
        for name in means
        if all(line.scores.get(name) is not None for lines in runs for line in lines)
    ]
    found: list[list[Statistics]] = []
    for lines in runs:
        of_images = [
            mean_statistics({name: [(line.scores[name] or 0) / PERCENT for line in lines]})
            for name in kept
        ]
        again = (
            scorer.score(dict(enumerate(line.caption for line in lines))).statistics
            if scorer
            else ()
        )
        found.append([*of_images, *again])
    return found if found[0] else []
