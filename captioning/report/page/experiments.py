"""What a run was set otherwise than its experiment."""

import functools
from collections.abc import Mapping

from captioning.config.experiments import composed_experiment
from captioning.report.reading import settings_as_text
from captioning.report.tested_runs import Run, system_settings

ABSENT = "nothing"
"""In place of a setting that the other has and this one not, as of another version."""


def differences(run: Run) -> dict[str, tuple[str, str]] | None:
    """The settings in which a run differs from its experiment with its model: the run's, and the experiment's.

    None where an earlier version has not recorded the experiment, or this version's `conf` has no such files.
    """
    if run.experiment is None or (planned := _planned(run.experiment, run.model)) is None:
        return None
    keys = sorted({*planned, *run.settings})
    both = {key: (run.settings.get(key, ABSENT), planned.get(key, ABSENT)) for key in keys}
    return {key: values for key, values in both.items() if values[0] != values[1]}


@functools.cache
def _planned(experiment: str, model: str) -> Mapping[str, str] | None:
    composed = composed_experiment(experiment, model)
    return None if composed is None else system_settings(settings_as_text(composed))
