"""Exceptions of libraries as one sentence: what came, what is allowed, what to do."""

import re
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from typing import Any
from zipfile import BadZipFile

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    ConfigTypeError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from pydantic import ValidationError
from yaml import YAMLError

from captioning.config.types import format_errors
from captioning.errors import (
    FITTING_PAIR,
    CaptioningError,
    did_you_mean,
    misfit,
    no_setting,
    one_line,
    ours_for,
)

EXPECTED = (
    CaptioningError,
    HydraException,
    OmegaConfBaseException,
    ValidationError,
    OSError,
    BadZipFile,
    BrokenExecutor,
    UnicodeError,
    YAMLError,
)
# other ValueErrors are defects of the program; these modules are not imported for their exceptions
# alone
BY_NAME = {
    "JSONDecodeError",
    "MisconfigurationException",
    "PanicException",  # of a compiled library, and no Exception
    "SafetensorError",
    "UnpicklingError",
}
OF_LIBRARIES = {  # beginnings of ValueErrors and RuntimeErrors of Hydra and PyTorch
    "Config group override": "a group of settings cannot be null: a part of a model is left out "
    "with a dot, as in model.encoder=null; of another group, set what is in it to null, one by one",
    "Exceeds the limit": "a number on the command line has thousands of digits; no setting is so "
    "large",
    "DataLoader worker": "a process that reads images was killed, perhaps because memory or shared "
    "memory (/dev/shm) ran out: free some or set data.num_workers=0, and continue with resume=true",
    "Unknown plugin class": "a plugin of Hydra is not installed: hydra/sweeper=search needs "
    "pip install 'captioning[optuna]', hydra/launcher=slurm 'captioning[slurm]'",
}
AMBIGUOUS = re.compile(r"(?:Ambiguous value for argument|Sweep parameters) '(.*?)'", re.DOTALL)
"""Hydra's message for several values without -m."""


def is_expected(error: BaseException) -> bool:
    """Return True for errors of settings, files or the network, not of the program."""
    return (
        isinstance(error, EXPECTED)
        or _of_library(error) is not None
        or misfit(error)
        or any(kind.__name__ in BY_NAME for kind in type(error).__mro__)
    )


def explain(error: BaseException) -> str:
    """Explain an exception in one line, after its notes (`add_note`), such as a file name."""
    return one_line(": ".join([*getattr(error, "__notes__", ()), _message(error)]))


def _message(error: BaseException) -> str:
    if misfit(error):
        return f"torchvision does not fit torch: pip install {FITTING_PAIR}"
    cause = error.__cause__ or error
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        # _base, of all of them
        names = sorted(option for option in error.options if not option.startswith("_"))
        hint = did_you_mean(name, names, ours_for(f"{group}={name}"))
        own = "" if hint else f"; --config-dir FOLDER adds those in FOLDER/{group}"
        return f"there is no {group}={name}.{hint} Allowed for {group}: {', '.join(names)}{own}"
    if isinstance(cause, ConfigTypeError) and isinstance(cause.parent_node, DictConfig):
        key = str(cause.full_key)  # a list in the place of a group
        hint = did_you_mean("", (), ours_for(key))
        allowed = ", ".join(sorted(map(str, cause.parent_node)))
        return f"{key} is a group of settings.{hint} Settings in {key}: {allowed}"
    if ambiguous := AMBIGUOUS.match(str(error)):
        value = ambiguous[1]
        return f"{value} has several values: -m runs each of them, as in captioning run -m {value}"
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and isinstance(
        cause.parent_node, DictConfig
    ):
        parent, _, name = str(cause.full_key or cause.key).rpartition(".")
        elsewhere = (
            () if parent else list(_namesakes(name, OmegaConf.to_container(cause.parent_node)))
        )
        return no_setting(parent, name, sorted(map(str, cause.parent_node)), elsewhere[:3])
    if isinstance(error, InterpolationResolutionError):
        raised = error.__context__ and error.__context__.__context__  # by a resolver of ours
        if isinstance(raised, CaptioningError):
            return explain(raised)
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} is not set and has no default: add {error.full_key}=VALUE"
    if isinstance(error, ValidationError):
        return format_errors("", error.errors())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, BrokenExecutor):  # of hydra/launcher=processes
        return (
            "a process of the sweep was killed, perhaps for its memory: set a smaller "
            "hydra.launcher.n_jobs"
        )
    return _of_library(error) or str(error) or type(error).__name__


def _namesakes(name: str, node: Any, path: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == name:
                yield f"{path}{key}"
            yield from _namesakes(name, value, f"{path}{key}.")


def _of_library(error: BaseException) -> str | None:
    texts = (text for start, text in OF_LIBRARIES.items() if str(error).startswith(start))
    return next(texts, None) if isinstance(error, ValueError | RuntimeError) else None
