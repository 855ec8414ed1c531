"""What a run has chosen otherwise than its system does by itself, which names it, and which of its
settings may change its result.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from captioning.config.arguments import parse_overrides, search_path
from captioning.config.registry import class_name, each_part
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import with_role
from captioning.config.types import Config, Role
from captioning.errors import quoted
from captioning.files import sha256
from captioning.runs.settings import each_setting, is_in, relocate

PLACES = with_role(RunSettings, Role.PLACE)
"""Folders. Other settings are derived from these folders, such as `data.reader.annotations`."""
STORED = ("overrides", "config_dir", "format")
"""What a `config.yaml` has beside the settings: the command line, `--config-dir` and a version."""
FREE = (*PLACES, *with_role(RunSettings, Role.FREE), *STORED)
"""Settings and groups that do not change the result of a run."""
SYSTEM = ("model", "data", "experiment")
"""Choices of every run. Together they decide all parts that the command does not choose."""
NO_PARTS = (*FREE, "hydra", "trainer", "callbacks")
"""Groups that are no part of a system: they name a run only if they are swept."""
MAX_FURTHER = 100
"""Characters of a folder's name for further choices."""


def add_choices(config: DictConfig) -> None:
    """Add to `config.choices` what differs from the system's defaults.

    Parts, and swept settings.

    A part has the name of its file in `conf/`, `score: dot`, or of its class if that is set
    directly.
    """
    if not GlobalHydra.instance().is_initialized():  # composed beneath the command line
        return
    hydra = HydraConfig.get()
    given = parse_overrides(hydra.overrides.task)
    system = [str(override.input_line) for override in given if override.key_or_group in SYSTEM]
    loader = GlobalHydra.instance().config_loader()
    # In this mode the command may have to choose what the system leaves open.
    default = loader.load_configuration(
        hydra.job.config_name, system + search_path(), RunMode.MULTIRUN
    )
    usual, swept = default.hydra.runtime.choices, swept_keys()
    chosen = {}
    for group, name in sorted(hydra.runtime.choices.items()):
        key = group.replace("/", ".")
        part = group in swept or not is_in(key, NO_PARTS)
        if part and group not in SYSTEM and "@" not in group and name != usual.get(group):
            chosen[key] = name
    ours, theirs = _classes(config), _classes(default)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key) and not is_in(key, [*NO_PARTS, *chosen]):
            chosen["class" if key == "model" else key] = ours.get(key)
    chosen = {key.removeprefix("model."): name for key, name in chosen.items()}
    for key in swept:
        value = OmegaConf.select(config, key)
        known = key in hydra.runtime.choices or key.endswith("._target_")
        if not known and value != OmegaConf.select(default, key, throw_on_resolution_failure=False):
            chosen[key] = value
    with open_dict(config):
        config.choices = {**config.choices, **chosen}


def _classes(config: DictConfig) -> dict[str, str]:
    return {key: class_name(part) for key, part in each_part("", OmegaConf.to_container(config))}


def further(choices: Mapping[str, Any]) -> str:
    """The end of a run folder's name, `-KEY=VALUE` for each choice that not every run makes."""
    swept = swept_keys()
    words = {
        key: quoted(value) if value in (None, True, False) else value
        for key, value in choices.items()
        if key not in SYSTEM or key in swept
    }
    given = "-".join(f"{key}={word}" for key, word in words.items())
    name = re.sub(r"[^\w.=+-]+", "_", given, flags=re.ASCII).strip("_")
    if len(name) > MAX_FURTHER:  # a digest tells it apart
        name = f"{name[: MAX_FURTHER - 9]}-{sha256(given)[:8]}"
    return f"-{name}" if name else ""


def keep_swept(keys: Iterable[str]) -> None:
    """Keep what the sweep of the present job varies where Hydra has it if a file sets it."""
    hydra: Any = HydraConfig.get()
    with read_write(hydra), open_dict(hydra):  # another sweeper may have no such setting
        hydra.sweeper.params = dict.fromkeys(keys, "")


def swept_keys() -> list[str]:
    """The settings and groups that the sweep of this job varies, without those in every name."""
    hydra = HydraConfig.get()
    if hydra.mode != RunMode.MULTIRUN:
        return []
    swept = hydra.sweeper.get("params") or {}
    return [str(key) for key in swept if key not in ("name", "model", "seed")]


def result_settings(config: Config) -> Config:
    """The settings of a resolved configuration that may change a run's result, wherever its files
    lie; null and an empty list are the same as absent.
    """
    given = dict(each_setting(config))
    for key in PLACES:
        if folder := given.get(key):
            config = relocate(config, str(folder), key)
    settings = dict(each_setting(config))
    if "val/METEOR" not in settings.values() and isinstance(settings.get("metrics.val"), list):
        # nothing is chosen by it
        settings["metrics.val"] = [name for name in settings["metrics.val"] if name != "METEOR"]
    return {
        key: value
        for key, value in settings.items()
        if value not in (None, []) and not is_in(key, FREE)
    }
