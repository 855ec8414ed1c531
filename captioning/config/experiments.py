"""What an experiment says, composed anew from the files of `conf`."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from captioning.config.registry import CONF
from captioning.config.settings import PLACES

NONE = "null"
"""In the place of an experiment's name: the defaults."""


def composed_experiment(experiment: str, model: str) -> dict[str, Any] | None:
    """The resolved configuration of an experiment with one of its models; `PLACES` are called by their own names.

    Both names may be a stranger's: only those of our files are composed.

    Returns:
        None where there are no such files, or they must be told more.
    """
    chosen = {"model": model} | ({} if experiment == NONE else {"experiment": experiment})
    if any(name not in _files(group) for group, name in chosen.items()):
        return None
    try:
        with _aside(), initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("config", [f"{group}={name}" for group, name in chosen.items()], return_hydra_config=True)
        with open_dict(config):
            config.choices = {name: config.hydra.runtime.choices[name] for name in ("model", "data")}
            del config.hydra, config.logger
            for place in PLACES:
                OmegaConf.update(config, place, place)
        found: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException):
        return None
    return found


@contextmanager
def _aside() -> Iterator[None]:
    """Without the command that runs: Hydra composes for one at a time."""
    running = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = running


@functools.cache
def _files(group: str) -> frozenset[str]:
    return frozenset(str(path.relative_to(CONF / group).with_suffix("")) for path in (CONF / group).rglob("*.yaml"))
