"""Runs of one system, seed by seed, as one row."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from captioning.errors import CaptioningError, quoted
from captioning.report.tested_runs import Run


@dataclass(frozen=True, slots=True)
class Value:
    """A mean over runs.

    Attributes:
        mean: over the runs that have it.
        deviation: standard deviation of a sample (divisor n - 1); None for one run.
    """

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Value | None":
        """None where there are no values."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True, slots=True)
class System:
    """Runs that differ in their seed alone.

    Attributes:
        label: the model, and in brackets the settings in which systems of this model differ.
        runs: one or more, of different seeds.
    """

    label: str
    runs: tuple[Run, ...]

    def score(self, name: str) -> Value | None:
        """Of the test split."""
        return Value.of([run.scores[name] for run in self.runs if name in run.scores])

    def provenance(self, read: Callable[[Run], float | None]) -> Value | None:
        """Of whatever a run can tell."""
        values = [value for run in self.runs if (value := read(run)) is not None and math.isfinite(value)]
        return Value.of(values)


def group(runs: Iterable[Run]) -> list[System]:
    """Systems in the order of their first runs.

    Raises:
        CaptioningError: two runs of one system have the same seed.
    """
    models: dict[str, dict[tuple[tuple[str, str], ...], list[Run]]] = {}
    for run in runs:
        models.setdefault(run.model, {}).setdefault(tuple(sorted(run.settings.items())), []).append(run)
    systems: list[System] = []
    for model, variants in models.items():
        differing = _differing([dict(settings) for settings in variants])
        for settings, members in variants.items():
            known = dict(settings)
            shown = ", ".join(f"{key}={known[key].strip(chr(39))}" for key in differing if key in known)
            label = quoted(f"{model} ({shown})" if shown else model)
            same = sum(system.label.partition(" #")[0] == label for system in systems)  # so long that it was cut
            system = System(f"{label} #{same + 1}" if same else label, tuple(members))
            _check_seeds(system)
            systems.append(system)
    return systems


def _differing(variants: Sequence[dict[str, str]]) -> list[str]:
    keys = sorted({key for variant in variants for key in variant})
    return [key for key in keys if len({variant.get(key) for variant in variants}) > 1]


def _check_seeds(system: System) -> None:
    by_seed: dict[int, Run] = {}
    for run in system.runs:
        if run.seed in by_seed:
            raise CaptioningError(
                f"{run.folder} and {by_seed[run.seed].folder} are the same system with the same seed {run.seed}, and "
                "would count twice: move one of them out of runs="
            )
        by_seed[run.seed] = run
