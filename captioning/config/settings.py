"""Checks of settings, files and folders before PyTorch is imported."""

import os
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from captioning.config.types import check_value
from captioning.download.named import check_checkpoint, given_path
from captioning.errors import CaptioningError


def check_checkpoints(config: DictConfig) -> None:
    """Refuse checkpoints of `checkpoint` and `decoding.ensemble` that are not there."""
    members = config.decoding.get("ensemble")
    for setting in (config.checkpoint, *(members if isinstance(members, ListConfig) else ())):
        if setting is not None:
            check_checkpoint("checkpoint", setting)


def check_folder(key: str, folder: object) -> None:
    """Refuse a folder that is not there."""
    if not os.path.isdir(given_path(folder)):  # noqa: PTH112 - `Path.is_dir` may raise
        raise CaptioningError(f"{key}={folder!s:.200} does not exist, or is not a folder")


def refuse(rules: Mapping[str, object]) -> None:
    """Raise the first message whose rule is violated."""
    for message, violated in rules.items():
        if violated:
            raise CaptioningError(message)


def check_table(table: Mapping[str, Any], config: DictConfig) -> None:
    """Check settings against the types in `table`; missing ones count as null."""
    settings = OmegaConf.to_container(config, resolve=True)
    for key, hint in table.items():
        value: Any = settings
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        check_value(key, value, hint)


def settings_given(settings: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """The settings of a command that are not null, and so replace a run's."""
    plain: Any = (
        OmegaConf.to_container(settings, resolve=True)
        if OmegaConf.is_config(settings)
        else settings
    )
    pairs = (
        (key, settings_given(value) if isinstance(value, dict) else value)
        for key, value in plain.items()
    )
    return {key: value for key, value in pairs if value is not None and value != {}}


def is_another_data_set(config: DictConfig) -> bool:
    """Return True if an evaluation has its own reader, as with `data=csv`."""
    return "_target_" in (config.data.get("reader") or {})


def has_other_photographs(config: DictConfig) -> bool:
    """Return True for an evaluation of a folder, or of changed photographs."""
    return config.images is not None or list(config.corruptions) != ["full"]
