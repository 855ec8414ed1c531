"""Settings against the signatures of what they are given to: a wrong value is found before anything is built."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

from annotated_types import DocInfo, Predicate

from captioning.config.foreign import foreign_bounds
from captioning.config.types import allowed_instead, hints_of
from captioning.errors import CaptioningError, no_setting, quoted

Part = Annotated[
    dict[str, Any],
    Predicate(lambda node: isinstance(node.get("_target_"), str)),
    DocInfo("settings with a _target_"),
]
"""How YAML says of an object how it is built."""


def check_settings(path: str, node: Any) -> None:
    """Checks every `_target_` in a resolved configuration, `path` its key, against that target's signature.

    Raises:
        CaptioningError: a setting that the target does not take, or a value that is not allowed.
    """
    for key, part in each_part(path, node):
        try:
            target = _located(part["_target_"])
        except Exception as error:  # whatever an import of the user's may raise
            reason = " ".join(str(error).split())
            named = quoted(part["_target_"])
            raise CaptioningError(f"{key}._target_={named} cannot be imported: {reason}") from error
        settings = {name: value for name, value in part.items() if not str(name).startswith("_")}
        partial = part.get("_partial_", False)
        check_value(f"{key}._partial_", partial, bool)
        check_call(key, target, settings, partial=partial)


def each_part(path: str, node: Any) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Every mapping with a `_target_` in a configuration, `path` its key, and the key of each; outer ones first."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield path, node
        for key, value in node.items():
            yield from each_part(f"{path}.{key}" if path else str(key), value)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from each_part(f"{path}[{number}]", value)


def defaults(path: str, node: Any) -> dict[str, Any]:
    """Defaults of the targets in a checked configuration, by the keys of the settings that are left out."""
    return {
        f"{key}.{name}": parameter.default
        for key, part in each_part(path, node)
        for name, parameter in inspect.signature(_located(part["_target_"])).parameters.items()
        if parameter.default is not parameter.empty
    }


def _located(target: str) -> Any:
    """What a `_target_` names; an attribute wins over a module of the same name, as in Hydra."""
    first, *rest = target.split(".")
    found, path = import_module(first), first
    for name in rest:
        path = f"{path}.{name}"
        found = getattr(found, name) if hasattr(found, name) else import_module(path)
    if not callable(found):
        raise TypeError(f"it is a {type(found).__name__}, not a class or function")
    return found


def check_call(path: str, function: Callable[..., Any], settings: Mapping[str, Any], partial: bool = False) -> None:
    """Checks the settings below `path` that `function` will be called with.

    Args:
        path: the key of the settings.
        function: a function or class.
        settings: by the names of its parameters.
        partial: the caller gives the parameters that have no default; they are not offered as settings.

    Raises:
        CaptioningError: as for `check_settings`.
    """
    parameters = inspect.signature(function).parameters
    hints = hints_of(function) | foreign_bounds(function)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in settings:
            if name not in parameters:
                settable = [key for key, p in parameters.items() if not partial or p.default is not p.empty]
                raise CaptioningError(no_setting(path, str(name), settable))
    for name, value in settings.items():
        check_value(f"{path}.{name}" if path else name, value, hints.get(name, Any))


def check_value(path: str, value: Any, hint: Any) -> None:
    """Checks the setting `path` against an annotation.

    Raises:
        CaptioningError: its value is not allowed.
    """
    if allowed := allowed_instead(value, hint, Part):
        raise CaptioningError(f"{path}={quoted(value)} is not allowed; it must be {allowed}")
