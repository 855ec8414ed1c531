"""What a run was set otherwise than its experiment, whose files are composed anew."""

import functools
from collections.abc import Mapping
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from captioning.config.registry import CONF
from captioning.config.settings import PLACES
from captioning.report.reading import settings_as_text
from captioning.report.tested_runs import Run, system_settings

ABSENT = "nothing"
"""In place of a setting that the other has and this one not, as of another version."""


def differences(run: Run) -> dict[str, tuple[str, str]] | None:
    """The settings in which a run differs from its experiment with its model: the run's, and the experiment's.

    None where an earlier version has not recorded the experiment, or this version's `conf` has no such files.
    """
    if run.experiment is None or (planned := _composed(run.experiment, run.model)) is None:
        return None
    keys = sorted({*planned, *run.settings})
    both = {key: (run.settings.get(key, ABSENT), planned.get(key, ABSENT)) for key in keys}
    return {key: values for key, values in both.items() if values[0] != values[1]}


@functools.cache
def _composed(experiment: str, model: str) -> Mapping[str, str] | None:
    """As a run's settings are; both names come from a file of a stranger's, and must be those of ours."""
    chosen = {"model": model} | ({} if experiment == "null" else {"experiment": experiment})
    if any(name not in _files(group) for group, name in chosen.items()):
        return None
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("config", [f"{group}={name}" for group, name in chosen.items()], return_hydra_config=True)
        with open_dict(config):
            config.choices = {name: config.hydra.runtime.choices[name] for name in ("model", "data")}
            del config.hydra, config.logger
            for place in PLACES:  # which what is compared does not depend on
                OmegaConf.update(config, place, place)
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException):  # such as one that must be told what to read
        return None
    return system_settings(settings_as_text(plain))


@functools.cache
def _files(group: str) -> frozenset[str]:
    return frozenset(str(path.relative_to(CONF / group).with_suffix("")) for path in (CONF / group).rglob("*.yaml"))
