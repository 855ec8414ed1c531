"""Systems: runs that differ in their seeds alone, with labels that tell them apart."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from captioning.errors import quoted
from captioning.metrics.table import HEADLINE
from captioning.report.runs import Run
from captioning.runs.settings import is_in

FEW = 3  # settings that a label has room for
QUOTE = "'"  # around texts that are settings


@dataclass(frozen=True)
class Value:
    """A mean over the runs that have it."""

    mean: float
    deviation: float | None = None  # of a sample (divisor n - 1); None for one run


@dataclass(frozen=True)
class System:
    """Runs that differ only in their seed."""

    # The model's title, and in brackets its further choices and the settings in which systems of
    # this model differ; of many as few as tell the systems apart, and nothing where that is the
    # name of most runs. A test of a part of the split is marked, `320 of 1,000`.
    full_label: str
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        """The label without names of settings, for narrow places."""
        return self.full_label.replace("(name=", "(").replace(", ...)", ")")

    @property
    def fully_tested(self) -> bool:
        """All its runs were tested on all of the split."""
        return not any(run.provenance.part for run in self.runs)

    @property
    def label_with_seeds(self) -> str:
        """The number of runs, with their seeds."""
        seeds = [str(run.seed) for run in self.runs]
        return f"{len(seeds)} (seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)})"

    @property
    def devices(self) -> list[str]:
        return sorted({run.provenance.device for run in self.runs})

    @property
    def objective(self) -> str:
        """The name of the class of its loss."""
        return str(self.runs[0].recorded.get("objective._target_", "")).rpartition(".")[2]

    def mean(self, read: Callable[[Run], float | None]) -> Value | None:
        """Of a number that runs may tell; None where no run does."""
        return mean(map(read, self.runs))

    def score(self, name: str) -> Value | None:
        """Of the test split; None where no run has it."""
        return self.mean(lambda run: run.scores.get(name))

    def curve(self, value: str, against: str) -> list[tuple[float, float, float]]:
        """Logged values, validation by validation.

        Each has the mean place, the mean of the runs' values there, and their deviation.
        """
        points = []
        for row in zip_longest(
            *(zip(*run.curve(value, against), strict=True) for run in self.runs)
        ):
            positions, values = zip(*(point for point in row if point is not None), strict=True)
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            points.append((statistics.fmean(positions), statistics.fmean(values), deviation))
        return points


def runs_of(systems: Iterable[System]) -> list[Run]:
    return [run for system in systems for run in system.runs]


def mean(values: Iterable[float | None]) -> Value | None:
    """Of the finite numbers among them; None where there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return Value(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def newest(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The run of each system and seed that was tested last, and a line for each other one."""

    def same(run: Run) -> object:
        return run.model, run.seed, run.provenance.data_digest, run.variant

    last = {same(run): run for run in sorted(runs, key=lambda run: run.tested)}
    kept, left_out = [], []
    for run in runs:
        newer = last[same(run)]
        if newer is run:
            kept.append(run)
        else:
            left_out.append(
                f"{run.folder}: {newer.folder} is of the same system and seed, and newer"
            )
    return kept, left_out


def group(runs: Sequence[Run]) -> list[System]:
    """Group runs into systems, best first.

    Partially tested ones and those without `HEADLINE` are last.
    """
    names = Counter(run.settings.get("name") for run in runs)
    usual = next((name for name, number in names.items() if 2 * number > len(runs)), None)
    shared = shared_choices(runs)
    models: dict[str, dict[object, list[Run]]] = {}
    for run in runs:
        variants = models.setdefault(run.model, {})
        variants.setdefault(run.variant, []).append(run)
    systems: list[System] = []
    for model, variants in models.items():
        members = list(variants.values())
        name = members[0][0].recorded.get("model.title") or model
        settings = [variant[0].settings for variant in members]
        chosen = [dict(chain(*(run.choices.items() for run in variant))) for variant in members]
        labels = Labels(chosen, settings, shared, usual)
        for shown, variant in zip(labels.texts(), members, strict=True):
            label = quoted(f"{name} ({', '.join(shown)})" if shown else name)
            parts = dict.fromkeys(run.provenance.part for run in variant if run.provenance.part)
            if parts:
                label += f" [test images: {'; '.join(parts)}]"
            # so long that it was cut
            same = sum(system.full_label.partition(" #")[0] == label for system in systems)
            systems.append(System(f"{label} #{same + 1}" if same else label, tuple(variant)))

    def rank(system: System) -> tuple[bool, float]:
        score = system.score(HEADLINE)
        return not system.fully_tested, math.inf if score is None else -score.mean

    return sorted(systems, key=rank)


def shared_choices(runs: Sequence[Run]) -> dict[str, str]:
    """Choices of all runs of several models or variants, which are said once above a table."""
    if len({(run.model, run.variant) for run in runs}) < 2:
        return {}
    others = [run.choices.items() for run in runs]
    return dict(sorted(set(others[0]).intersection(*others)))


class Labels:
    """What labels say of the V variants of a model, after its title.

    A label has the choices of a variant but those that all systems share, and further settings, as
    few as tell the variants apart. A setting of a part is left out where its choice implies it.

    Args:
        chosen: the choices of each variant.
        settings: those of a run of each variant, as `repr` writes them.
        shared: choices of all systems of the table.
        usual: the name of most runs of the table, which no label needs.

    Example:
        Of two variants with other scores, whose classes follow, and other lengths:

        >>> chosen = [{"score": "dot"}, {"score": "mlp"}]
        >>> settings = [
        ...     {"model.score._target_": "'Dot'", "data.max_words": "30", "data.tokens": "'words'"},
        ...     {"model.score._target_": "'MLP'", "data.max_words": "50", "data.tokens": "'words'"},
        ... ]
        >>> Labels(chosen, settings, shared={}).texts()
        [['score=dot', 'data.max_words=30'], ['score=mlp', 'data.max_words=50']]
    """

    def __init__(
        self,
        chosen: Sequence[Mapping[str, str]],
        settings: Sequence[Mapping[str, str]],
        shared: Collection[str],
        usual: str | None = None,
    ):
        self.chosen = chosen
        self.usual = usual
        self.settings = [{**own, **of_run} for own, of_run in zip(chosen, settings, strict=True)]
        self.choices = set().union(*chosen)
        self.named = sorted(self.choices.difference(shared), key=lambda key: ("." in key, key))
        for key in self.named:
            self._drop_own_value(key)

    def texts(self) -> list[list[str]]:
        """The settings that each label names, as `KEY=VALUE`."""
        keys = sorted(set().union(*self.settings).difference(self.named))
        differing = [key for key in keys if self._count([key]) > 1]
        others = [key for key in differing if not self._follows(key)]
        further = others if len(others) <= FEW else self._fewest(differing)
        labels = []
        for settings in self.settings:
            is_usual = further == ["name"] and settings.get("name") == self.usual
            keys = self.named if is_usual else [*self.named, *further]
            label = [f"{key}={settings[key].strip(QUOTE)}" for key in keys if key in settings]
            if label and not is_usual and len(further) < len(others):
                label.append("...")
            labels.append(label)
        return labels

    def _drop_own_value(self, key: str) -> None:
        """Forget the value of a choice in the variants that did not choose, if they have one."""
        variants = zip(self.settings, self.chosen, strict=True)
        plain = [settings for settings, own in variants if key not in own]
        if len({settings.get(key) for settings in plain}) == 1:
            for settings in plain:
                settings.pop(key, None)

    def _count(self, keys: Sequence[str]) -> int:
        """How many of the variants these keys tell apart."""
        return len({tuple(settings.get(key) for key in keys) for settings in self.settings})

    def _follows(self, key: str) -> bool:
        """Whether a setting of a part differs only where the choices do."""
        parts = [f"model.{name}" for name in self.choices]
        if not is_in(key, [*self.choices, *parts, "model._target_"]):
            return False
        choices = [tuple(own.items()) for own in self.chosen]
        values = [settings.get(key) for settings in self.settings]
        return len(set(zip(choices, values, strict=True))) == len(set(choices))

    def _fewest(self, keys: Sequence[str]) -> list[str]:
        """Choose a few keys that tell all variants apart, the name alone if it does as well."""
        chosen: list[str] = []
        while self._count([*self.named, *chosen]) < len(self.settings):

            def rank(key: str) -> tuple[int, bool, int]:
                return self._count([*self.named, *chosen, key]), key == "name", -len(key)

            chosen.append(max(keys, key=rank))
        return chosen
