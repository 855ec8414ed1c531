"""Settings against the signatures of what they are given to: a wrong value is found before anything is built."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union

from captioning.errors import CaptioningError


def check_settings(path: str, node: Any) -> None:
    """Checks every `_target_` in a resolved configuration, `path` its key, against that target's signature.

    Raises:
        CaptioningError: a setting that the target does not take, or a value of another type than it takes.
    """
    if isinstance(node, Mapping):
        if "_target_" in node:
            try:
                target = _located(node["_target_"])
            except Exception as error:  # whatever an import of the user's may raise
                reason = " ".join(str(error).split())
                raise CaptioningError(f"{path}._target_={node['_target_']} cannot be imported: {reason}") from error
            settings = {key: value for key, value in node.items() if not key.startswith("_")}
            check_call(path, target, settings, partial=bool(node.get("_partial_")))
        for key, value in node.items():
            check_settings(f"{path}.{key}" if path else str(key), value)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            check_settings(f"{path}[{number}]", value)


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
    try:
        hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except Exception:  # names that only a type checker imports
        hints = {}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in settings:
            if name not in parameters:
                settable = [key for key, p in parameters.items() if not partial or p.default is not p.empty]
                raise CaptioningError(no_setting(path, name, settable))
    for name, value in settings.items():
        hint = hints.get(name, Any)
        if not _fits(value, hint):
            full = f"{path}.{name}" if path else name
            raise CaptioningError(f"{full}={_shown(value)} is not allowed; it must be {_allowed(hint)}")


def did_you_mean(name: str, allowed: list[str]) -> str:
    """A hint at the closest of `allowed`, with a space before it, or nothing where none is close."""
    close = get_close_matches(name, allowed, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def no_setting(path: str, name: str, allowed: list[str]) -> str:
    """The message for a setting `name` that does not exist below `path`, where `allowed` do."""
    where = f"in {path}" if path else "at the top level"
    full = f"{path}.{name}" if path else name
    return f"there is no setting {full}.{did_you_mean(name, allowed)} Settings {where}: {', '.join(sorted(allowed))}"


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from YAML may stand for `hint`; what YAML cannot say, such as a class, is not judged."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in typing.get_args(hint))
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in typing.get_args(hint))
    if hint is type(None) or hint is None:
        return value is None
    if hint is bool or hint is str:
        return isinstance(value, hint)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, str)
    if inspect.isclass(origin or hint) and hint not in (Any, object):
        return isinstance(value, Mapping | list)  # built by a nested `_target_`, or a sequence
    return True


def _allowed(hint: Any) -> str:
    choices = list(dict.fromkeys(_choices(hint)))
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"


def _choices(hint: Any) -> list[str]:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return [_shown(choice) for choice in typing.get_args(hint)]
    if origin in (Union, types.UnionType):
        return [name for choice in typing.get_args(hint) for name in _choices(choice)]
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}
    if hint is type(None):
        return ["null"]
    # Of other types YAML can only say how to build them.
    return [names[hint]] if hint in names else ["a list or an object with a _target_"]


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
