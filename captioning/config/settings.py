"""A configuration as plain settings by their keys, `data.batch_size` and the like."""

from collections.abc import Iterator, Sequence
from typing import Any


def each_setting(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain setting below `path` and its key; an empty group is a setting, and so is a list."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from each_setting(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def merged(settings: Any, given: Any) -> Any:
    """The settings with those that were given in their place, group by group."""
    if not isinstance(settings, dict) or not isinstance(given, dict):
        return given
    return {**settings, **{key: merged(settings.get(key), value) for key, value in given.items()}}


def moved(node: Any, old: str, new: str) -> Any:
    """The same settings with the folder `old` replaced where a path begins with it."""
    if isinstance(node, dict):
        return {key: moved(value, old, new) for key, value in node.items()}
    if isinstance(node, str) and (node == old or node.startswith(f"{old}/")):
        return new + node.removeprefix(old)
    return node


def within(key: str, groups: Sequence[str]) -> bool:
    """Whether a setting is one of `groups`, or lies in one."""
    return any(key == group or key.startswith(f"{group}.") for group in groups)
