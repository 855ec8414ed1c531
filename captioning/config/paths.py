"""Files and folders that settings name, looked for before anything is imported that would read them."""

import os
from pathlib import Path
from typing import Final

from omegaconf import DictConfig, ListConfig

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
