"""Compose an experiment anew from the files of `conf`."""

from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from captioning.config.registry import CONF
from captioning.config.settings import PLACES


def composed_experiment(experiment: str, model: str) -> dict[str, Any] | None:
    """The resolved configuration of an experiment with one of its models; `PLACES` are called by their own names.

    The experiment `null` has the defaults. None where there are no such files, or they have settings without a value.
    """
    chosen = {"model": model} | ({} if experiment == "null" else {"experiment": experiment})
    for group, name in chosen.items():  # both may be a stranger's, and only our files are composed
        if CONF / group / f"{name}.yaml" not in set((CONF / group).rglob("*.yaml")):
            return None
    running = GlobalHydra.instance().hydra  # Hydra composes for one command at a time
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("config", [f"{group}={name}" for group, name in chosen.items()], return_hydra_config=True)
        with open_dict(config):
            config.choices = {name: config.hydra.runtime.choices[name] for name in ("model", "data")}
            del config.hydra, config.logger
            for place in PLACES:
                OmegaConf.update(config, place, place)
        found: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException):
        return None
    finally:
        GlobalHydra.instance().hydra = running
    return found
