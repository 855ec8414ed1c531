"""Exceptions of libraries as one sentence: what came, what is allowed, what to do."""

from concurrent.futures import BrokenExecutor
from zipfile import BadZipFile

from hydra.errors import HydraException, InstantiationException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from pydantic import ValidationError
from yaml import YAMLError

from captioning.config.settings import each_setting
from captioning.config.types import refusals
from captioning.errors import CaptioningError, did_you_mean, no_setting, one_line

EXPECTED = (CaptioningError, HydraException, OmegaConfBaseException, ValidationError, OSError, BadZipFile, YAMLError)
# JSONDecodeError is a ValueError of its own module; other ValueErrors are defects of the program
EXPECTED_BY_NAME = {
    ("json.decoder", "JSONDecodeError"),
    ("lightning.fabric.utilities.exceptions", "MisconfigurationException"),
    ("safetensors", "SafetensorError"),
    ("_pickle", "UnpicklingError"),
}
HYDRA_VALUES = {
    # for model/encoder=null and model=null
    "Config group override": "a group of settings cannot be null: a part of a model is left out with a dot, as in "
    "model.encoder=null; of another group, set what is in it to null, one by one",
    "Exceeds the limit": "a number on the command line has thousands of digits; no setting is so large",
}
"""Beginnings of Hydra's ValueErrors, and better messages."""


def is_expected(error: BaseException) -> bool:
    """Tell whether an exception is due to settings, files or the network, not to a defect of the program."""
    if isinstance(error, (*EXPECTED, UnicodeError, BrokenExecutor)) or _of_hydra(error):
        return True
    return any((kind.__module__, kind.__name__) in EXPECTED_BY_NAME for kind in type(error).__mro__)


def explain(error: BaseException) -> str:
    """One line about an exception; its notes (`add_note`) come first, such as the file that it is about."""
    return one_line(_explained(error))


def _explained(error: BaseException) -> str:
    return "".join(f"{note}: " for note in getattr(error, "__notes__", ())) + _message(error)


def _message(error: BaseException) -> str:
    cause = error.__cause__ or error
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        names = sorted(option for option in error.options if not option.startswith("_"))  # _base, of all of them
        hint = did_you_mean(name, names)
        return f"there is no {group}={name}.{hint} Allowed for {group}: {', '.join(names)}"
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and isinstance(cause.parent_node, DictConfig):
        parent, _, name = str(cause.full_key or cause.key).rpartition(".")
        settings = () if parent else each_setting(OmegaConf.to_container(cause.parent_node))
        elsewhere = [key for key, _ in settings if key.endswith(f".{name}")]
        return no_setting(parent, name, sorted(map(str, cause.parent_node)), elsewhere[:3])
    if isinstance(error, InstantiationException):
        return str(cause) if isinstance(cause, CaptioningError) else in_part(_last_line(error), cause)
    if isinstance(error, ValidationError):
        return in_part("", error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, BrokenExecutor):  # of hydra/launcher=processes
        return (
            "a process of the sweep was killed, perhaps because memory ran out. What has ended is kept; the "
            "same command goes on, and fewer at a time (hydra.launcher.n_jobs) take less memory"
        )
    return _of_hydra(error) or str(error) or type(error).__name__


def in_part(key: str, error: BaseException) -> str:
    """What a part refuses, `key` its place in the configuration: settings by their full keys."""
    if isinstance(error, ValidationError):
        return refusals(key, error)
    return f"{key}: {_explained(error)}" if key else _explained(error)


def _of_hydra(error: BaseException) -> str | None:
    if not isinstance(error, ValueError):
        return None
    return next((text for start, text in HYDRA_VALUES.items() if str(error).startswith(start)), None)


def _last_line(error: Exception) -> str:
    return str(error).splitlines()[-1].removeprefix("full_key: ")
