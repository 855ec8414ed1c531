"""Settings of stored runs: read as data, compared, relocated, and composed again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig
from pydantic import ValidationError

from captioning.config.explain import explain
from captioning.config.types import Config, map_values
from captioning.errors import CaptioningError, listed
from captioning.files import LARGEST_SETTINGS, read_state

T = TypeVar("T")


FORMAT = 2
"""Of stored settings and checkpoints."""


def each_setting(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each plain setting below `path` with its key.

    Lists and empty groups count as settings.
    """
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from each_setting(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def in_some_folder(config: DictConfig) -> DictConfig:
    """The same for a run whose folder has no name yet, or whose name does not matter."""
    config = config.copy()
    config.folder = "folder"
    return config


def differing(
    one: Mapping[str, str], other: Mapping[str, str], absent: str
) -> dict[str, tuple[str, str]]:
    """Both values of each setting that differs, by key.

    `absent` stands for one that is not there.
    """
    return {
        key: (one.get(key, absent), other.get(key, absent))
        for key in sorted(one.keys() | other.keys())
        if one.get(key, absent) != other.get(key, absent)
    }


def list_differences(both: Mapping[str, tuple[str, str]]) -> str:
    """Name the first settings that differ, by both values of each; empty if none does."""
    return listed([f"{key}={new} (it has {old})" for key, (old, new) in both.items()])


def is_in(key: str, groups: Sequence[str]) -> bool:
    """Return True for a setting that is one of `groups`, or in one."""
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def relocate(node: Any, old: str, new: str) -> Any:
    """The same settings with the folder `old` replaced where a path begins with it."""

    def moved(value: Any) -> Any:
        below = isinstance(value, str) and f"{value}/".startswith(f"{old}/")
        return new + value.removeprefix(old) if below else value

    return map_values(node, moved)


def read_settings(path: Path) -> Config:
    """A resolved `config.yaml` as plain values: nothing in it is looked up, imported or built."""
    advice = "bring it back from a copy, or move its folder away"
    return read_state(path, _parse, advice, LARGEST_SETTINGS)


def read_runs(folder: Path, read: Callable[[Path, Config], T]) -> tuple[list[T], list[str]]:
    """What `read` makes of each run below a folder, by name, and a line per run it refuses."""
    runs, refused = list[T](), list[str]()
    for path in sorted(folder.rglob("config.yaml")):
        if "wandb" in path.relative_to(folder).parts:
            continue  # W&B's own copy
        try:
            settings = read_settings(path)
            if "model" in settings:
                runs.append(read(path.parent, settings))
        except (CaptioningError, OSError, ValidationError) as error:
            refused.append(f"{path.parent}: {explain(error)}")
    return runs, refused


class _PlainLoader(yaml.SafeLoader):
    """YAML loader without aliases, which can expand a small file to any size."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("it has a YAML alias")
        return super().compose_node(parent, index)


def _parse(text: str) -> Config:
    settings = yaml.load(text, _PlainLoader)
    if not isinstance(settings, dict):
        raise ValueError("it holds no settings")
    if "model" in settings and settings.get("format") != FORMAT:
        raise ValueError("another version of captioning wrote it")
    str(settings)  # which Python refuses for a number of thousands of digits
    return settings
