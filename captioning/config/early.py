"""What a run's configuration cannot be, seen without the libraries that take seconds to import.

That is what is missing or no setting at all, files and folders that are not there, and values outside the bounds that
the source of a class names. The classes that settings are for see the rest, in `captioning.config.check`.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, DictConfig, OmegaConf

from captioning.config.composed import check_table
from captioning.config.paths import check_checkpoint, check_data_root
from captioning.config.signatures import Part, check_value
from captioning.config.source import check_sources
from captioning.config.types import Count, Name, PathText, Seconds, Seed
from captioning.errors import CaptioningError
from captioning.metrics.scorer import Metrics

FROM_CHECKPOINT: Final = "checkpoint"
"""In the place of a vocabulary's settings: its words are those of `init_from`."""
SETTINGS: Mapping[str, Any] = {
    "name": Name,
    "seed": Seed,
    "resume": bool | None,
    "init_from": PathText | None,
    "test": bool,
    "runs": PathText,
    "cache": PathText,
    "metrics.val": Metrics,
    "metrics.test": Metrics,
    "metrics.timeout": Seconds,
    "data.reader": Part,
    "data.vocabulary": dict[str, Any] | Literal[FROM_CHECKPOINT],
    "data.views": Count,
    "data.view": Part,
    "data.skip_broken": bool,
    **dict.fromkeys(("backbone", "model", "objective", "decoding", "optimizer", "schedule", "trainer"), Part),
    "callbacks": dict[str, Part | None],
    "logger": dict[str, Part | None] | None,
}
"""What is no argument of a part."""
PARTIAL = ("decoding", "optimizer", "schedule")
"""Parts that are called during training."""


def check_early(config: DictConfig) -> None:
    """Refuses what can be refused at once.

    Raises:
        CaptioningError: names the setting, and what to change.
    """
    _check_missing(config)
    if "root" in config.data:
        check_value("data.root", config.data.root, PathText)
        check_data_root(config.data.root)
    _check_parts(config)
    check_table(SETTINGS, with_folder(config))
    if config.init_from is not None:
        check_checkpoint("init_from", config.init_from)
    elif config.data.vocabulary == FROM_CHECKPOINT:
        raise CaptioningError("data.vocabulary=checkpoint takes the words of init_from=CHECKPOINT, which is not set")
    for name in PARTIAL:
        if config[name].get("_partial_") is not True:
            raise CaptioningError(f"{name}._partial_ must be true: training calls this part itself")
    _check_processes(config)
    _check_sources(config)


def data_settings(config: DictConfig) -> dict[str, Any]:
    """The arguments of the data module that are plain settings."""
    names = ("batch_size", "eval_batch_size", "captions_per_image", "max_words", "num_workers")
    return {name: config.data[name] for name in names} | {"seed": config.seed}


def _check_missing(config: DictConfig) -> None:
    for key in _missing(OmegaConf.to_container(config, resolve=False)):
        raise CaptioningError(f"{key} is not set and has no default: add {key}=VALUE")


def _missing(node: Any, path: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _missing(value, f"{path}.{key}" if path else key)
    elif node == MISSING:
        yield path


def with_folder(config: DictConfig) -> DictConfig:
    """The configuration of a run whose folder has no name yet."""
    named = config.copy()
    OmegaConf.update(named, "folder", "folder")
    return named


def _check_parts(config: DictConfig) -> None:
    callbacks = config.get("callbacks") or {}
    if callbacks.get("checkpoint") is None:
        raise CaptioningError("a run keeps its best checkpoint: callbacks.checkpoint cannot be null or deleted")
    if config.test and callbacks.get("results") is None:
        raise CaptioningError("callbacks.results writes the test's captions and scores: without it set test=false")
    if callbacks.get("learning_rate") is not None and not any((config.get("logger") or {}).values()):
        raise CaptioningError("callbacks.learning_rate needs a logger: keep logger.csv, or set it to null too")


def _check_processes(config: DictConfig) -> None:
    launcher = str(HydraConfig.get().launcher._target_)
    if "joblib" in launcher and config.trainer.devices != 1:
        raise CaptioningError(
            f"hydra/launcher=processes gives each job one process, and trainer.devices={config.trainer.devices} needs "
            "others: set trainer.devices=1, or leave the launcher out, so that the jobs run one after the other"
        )
    started = int(os.environ.get("WORLD_SIZE", 1))
    if started > 1 and config.trainer.devices == 1 and config.trainer.get("num_nodes", 1) == 1:
        raise CaptioningError(
            f"{started} processes were started, and with trainer.devices=1 each would train on its own: "
            "set trainer=ddp and trainer.devices to the number of processes per node"
        )


def _check_sources(config: DictConfig) -> None:
    settings: Any = OmegaConf.to_container(with_folder(config), resolve=True)
    settings["decoding"].pop("filters", None)  # they name words, which become numbers later
    check_sources("", settings)
    check_sources("data", {"_target_": "captioning.data.module.CaptionData", **data_settings(config)})
