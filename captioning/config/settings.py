"""The settings of commands: judged by a table; and the files and folders that they name.

These are looked for before anything is imported that would read them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from omegaconf import DictConfig, ListConfig, OmegaConf

from captioning.config.types import check_value
from captioning.download.named import FILE, check_address, fetched, is_elsewhere
from captioning.errors import CaptioningError

# not the methods of `Path`: they raise for names that no file or home can have
# ruff: noqa: PTH111, PTH110, PTH112, PTH113

PRETRAINED: Final = "pretrained"
"""The name of the bundled captioner, and of its folder in the package."""


def given_path(setting: object) -> Path:
    """The path that a setting names; ~ is the user's home."""
    return Path(os.path.expanduser(str(setting)))


def checkpoint_path(setting: object) -> Path:
    """The file of a checkpoint; that of an address is downloaded."""
    if setting == PRETRAINED:
        return Path(__file__).parents[1] / PRETRAINED / FILE
    return fetched(str(setting)) if is_elsewhere(setting) else given_path(setting)


def check_checkpoint(key: str, setting: object) -> None:
    """Refuse a checkpoint that is not there, or the address of another form."""
    if is_elsewhere(setting):
        check_address(key, setting)
        return
    path = checkpoint_path(setting)
    if not os.path.isfile(path):
        below = path / "checkpoints" / "best.ckpt"
        hint = f"did you mean {below}?" if os.path.isfile(below) else "a run leaves RUN_FOLDER/checkpoints/best.ckpt"
        found = "a folder" if os.path.isdir(path) else "not a file" if os.path.exists(path) else "not there"
        raise CaptioningError(f"{key}={setting} is {found}; {hint}")


def check_checkpoints(config: DictConfig) -> None:
    """Refuse checkpoints of `checkpoint` and `decoding.ensemble` that are not there."""
    members = config.decoding.get("ensemble")
    for setting in (config.checkpoint, *(members if isinstance(members, ListConfig) else ())):
        if setting is not None:
            check_checkpoint("checkpoint", setting)


def check_folder(key: str, folder: object) -> None:
    """Refuse a folder that is not there."""
    if not os.path.isdir(given_path(folder)):
        raise CaptioningError(f"{key}={folder!s:.200} does not exist, or is not a folder")


def check_table(table: Mapping[str, Any], config: DictConfig) -> None:
    """Check the settings that `table` has types for; there may be others, and an absent one is null."""
    settings: Any = OmegaConf.to_container(config, resolve=True)
    for key, hint in table.items():
        node, groups = settings, key.split(".")
        for depth, name in enumerate(groups):
            if depth:
                check_value(".".join(groups[:depth]), node, dict[str, Any])
            node = node.get(name)
        check_value(key, node, hint)


def settings_given(settings: DictConfig) -> dict[str, Any]:
    """The settings of a command that are not null, and so replace a run's."""

    def without_null(node: Any) -> Any:
        pairs = ((key, without_null(value) if isinstance(value, dict) else value) for key, value in node.items())
        return {key: value for key, value in pairs if value is not None and value != {}}

    given: dict[str, Any] = without_null(OmegaConf.to_container(settings, resolve=True))
    return given


def is_another_data_set(config: DictConfig) -> bool:
    """Whether an evaluation has its own reader, as with `data=csv`."""
    return "_target_" in (config.data.get("reader") or {})


def has_other_photographs(config: DictConfig) -> bool:
    """Whether an evaluation is of a folder, or of changed photographs."""
    return config.images is not None or list(config.views) != ["full"]
