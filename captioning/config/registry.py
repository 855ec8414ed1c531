"""The parts that a configuration may name, and how a stranger's are built from plain values.

A checkpoint's configuration is data. What it may name is what the files below `conf/` name at the same place, and what
is defined in modules that the user names; nothing else is imported, called or read.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.utils import _locate as located  # `get_object` logs what it also raises
from pydantic import ValidationError

from captioning.config.types import check_value, hints_of, refusals
from captioning.errors import CaptioningError, no_setting, quoted

PACKAGE = Path(__file__).parents[1]
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parent / "conf"
"""The configuration: inside an installed wheel, else beside the package in a checkout."""
CALLBACKS = {
    "records": ("attention_panels", "kept_attention", "results"),
    "statistics": ("attention_statistics", "caption_wording", "pointing"),
    "timing": ("compiled", "stopwatch", "throughput"),
    "resume": ("resume_points",),
}
OLD_PATHS: dict[str, str] = {
    "models.parts.pairs": "models.parts.cells",
    "models.parts.initial": "models.parts.image",
    "models.parts.inject": "models.parts.image",
    "models.parts.transposed": "models.parts.encoders",
    "backbones.small_cnn": "backbones.scratch",
    "backbones.patches": "backbones.scratch",
    "data.readers.csv": "data.readers.table",
    # never built from stored configurations, but compared when a run is resumed
    **{f"training.callbacks.{old}": f"training.callbacks.{new}" for new, olds in CALLBACKS.items() for old in olds},
}
"""Modules of captioning whose parts have moved, and where to: stored configurations name the old ones."""
ATTENTION = {"_target_": "captioning.models.parts.attention.SoftmaxAttention", "_partial_": True}
ATTENTION_SETTINGS = ("gate", "choice", "temperature", "smoothing", "energy_bias", "window")
"""These were settings of the model until attention was a part."""
TITLE = "title"
"""Key of a model's display name, for reports alone."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def build(place: str, node: Any, modules: Sequence[str] = (), **sizes: Any) -> Any:
    """Build the part that a stranger's plain values describe.

    Args:
        place: `backbone`, `model`, `decoding` or `data.reader`.
        node: `_target_`, and its arguments by name; `_partial_` keeps some for later.
        modules: of the user, whose classes and functions may be named too.
        sizes: further arguments of the outermost part.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise CaptioningError(f"{place}={quoted(node)} must be settings with a _target_")
    node = renewed(node)
    target = locate(place, node["_target_"], modules)
    for key in node:
        if not isinstance(key, str) or (key.startswith("_") and key not in ("_target_", "_partial_")):
            raise CaptioningError(f"{place} has the key {quoted(key)}; special keys are _target_ and _partial_")
    partial, allowed = node.get("_partial_", False), _partial(place, node["_target_"])
    if not isinstance(partial, bool) or partial not in allowed:
        choices = " or ".join(map(quoted, sorted(allowed, reverse=True)))
        raise CaptioningError(f"{place}._partial_={quoted(partial)} is not allowed; it must be {choices}")
    settings = {key: value for key, value in node.items() if not key.startswith("_") and key != TITLE}
    check_arguments(place, target, settings, partial)
    arguments = {name: _argument(f"{place}.{name}", value, modules) for name, value in settings.items()} | sizes
    try:
        return functools.partial(target, **arguments) if partial else target(**arguments)
    except CaptioningError:
        raise
    except ValidationError as error:
        raise CaptioningError(refusals(place, error)) from error
    except Exception as error:  # a constructor may raise anything if its arguments do not go together
        raise CaptioningError(f"{place}: {quoted(error)}") from error


def renewed(node: Any) -> Any:
    """Stored settings in today's terms: each `_target_` of `OLD_PATHS` replaced, and attention as a part."""
    if isinstance(node, Mapping):
        settings = {
            key: _moved(value) if key == "_target_" and isinstance(value, str) else renewed(value)
            for key, value in node.items()
        }
        if settings.get("_target_") == "captioning.models.Recurrent" and "attention" not in settings:
            own = {key: settings.pop(key) for key in ATTENTION_SETTINGS if key in settings}
            settings |= {"attention": {**ATTENTION, **own}} if settings.get("score") else {}
        return settings
    return [renewed(value) for value in node] if isinstance(node, list) else node


def _moved(target: str) -> str:
    module, _, name = target.removeprefix("captioning.").rpartition(".")
    return f"captioning.{OLD_PATHS[module]}.{name}" if module in OLD_PATHS else target


def locate(place: str, target: Any, modules: Sequence[str] = ()) -> Callable[..., Any]:
    """The class or function called `target`, if it may stand at `place`."""
    if not isinstance(target, str):
        raise CaptioningError(f"{place}._target_={quoted(target)} must be text")
    target = _moved(target)
    module, _, name = target.rpartition(".")
    ours = target in registered(place)
    if not ours and module not in modules:
        raise CaptioningError(
            f"{place} names {quoted(target)}, which is no part of captioning that may stand there, and it is not "
            f"imported. If it is your own, name its module: modules=[{quoted(module)}]"
        )
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        raise CaptioningError(f"{place}._target_={quoted(target)} cannot be imported: {quoted(error)}") from error
    # or a stranger could choose among all that the user's module imports
    defined = f"{getattr(found, '__module__', '')}.".startswith(f"{module}.")
    if not (inspect.isclass(found) or inspect.isfunction(found)) or not (ours or defined):
        raise CaptioningError(f"{place} names {quoted(target)}, which is no class or function that {module} defines")
    return found


def each_part(key: str, node: Any) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Every mapping with a `_target_` in a configuration, and its key; `key` is that of `node`."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield key, node
        for name, value in node.items():
            yield from each_part(f"{key}.{name}" if key else str(name), value)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from each_part(f"{key}[{number}]", value)


def check_parts(key: str, node: Any) -> None:
    """Refuse arguments of any part below `key` that do not fit the names and types of its parameters."""
    for place, part in each_part(key, node):
        try:
            target = located(part["_target_"])
        except Exception as error:  # a user's module may raise anything
            named = quoted(part["_target_"])
            raise CaptioningError(f"{place}._target_={named} cannot be imported: {quoted(error)}") from error
        if not callable(target):
            raise CaptioningError(f"{place}._target_={quoted(part['_target_'])} is no class or function")
        check_value(f"{place}._partial_", part.get("_partial_", False), bool)
        settings = {name: value for name, value in part.items() if not str(name).startswith("_")}
        if place == "model":
            settings.pop(TITLE, None)
        check_arguments(place, target, settings, bool(part.get("_partial_")))


def check_arguments(key: str, target: Callable[..., Any], settings: Mapping[str, Any], partial: bool = False) -> None:
    """Refuse plain arguments that do not fit the names and types of a function's or class' parameters.

    Args:
        key: of the settings in the configuration.
        target: takes them.
        settings: arguments by name; those that describe parts are judged when these are built.
        partial: parameters without a default are not settings.
    """
    parameters = inspect.signature(target).parameters
    hints = hints_of(target)
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name, value in settings.items():
        if name not in parameters and not open_ended:
            known = [name for name, each in parameters.items() if not partial or each.default is not each.empty]
            raise CaptioningError(no_setting(key, str(name), known))
        if name in hints and next(each_part("", value), None) is None:
            check_value(f"{key}.{name}" if key else name, value, hints[name])


def defaults(key: str, node: Any) -> dict[str, Any]:
    """Defaults of the parts below `key`, by the keys of the settings that may be left out."""
    return {
        f"{place}.{name}": parameter.default
        for place, part in each_part(key, node)
        for name, parameter in inspect.signature(located(part["_target_"])).parameters.items()
        if parameter.default is not parameter.empty
    }


def check_loadable(place: str, node: Any) -> None:
    """Refuse what Hydra builds but a checkpoint cannot be loaded with: targets that their module only imports."""
    for key, part in each_part(place, node):
        locate(key, part["_target_"], [str(part["_target_"]).rpartition(".")[0]])


@functools.cache
def registered(place: str) -> frozenset[str]:
    """Targets of the shipped configuration at `place`, such as `model`; at `model.score`, all within `model`.

    Within a backbone there may be others, since two can stand side by side.
    """
    return frozenset(target for target, _ in _shipped(place))


@functools.cache
def _shipped(place: str) -> frozenset[tuple[str, bool]]:
    """Targets of the shipped configuration at `place`, and whether they are partial."""
    outermost = "data.reader" if place.startswith("data.") else place.partition(".")[0]
    group = CONF / outermost.partition(".")[0]
    found: set[tuple[str, bool]] = set()
    for file in sorted(group.rglob("*.yaml")):
        key = ".".join(file.relative_to(CONF).parts[:-1])
        for each, node in each_part(key, yaml.load(file.read_text(encoding="utf-8"), LOADER)):
            if (each != outermost) == (place != outermost) or outermost == "backbone":
                found.add((node["_target_"], node.get("_partial_", False)))
    return frozenset(found)


def _partial(place: str, target: str) -> set[bool]:
    """Values of `_partial_` that are allowed: as shipped; of a user's part as shipped there, inside others any."""
    shipped = _shipped(place)
    ours = {partial for name, partial in shipped if name == target}
    return ours or ({partial for _, partial in shipped} if "." not in place else {False, True})


def _argument(place: str, value: Any, modules: Sequence[str]) -> Any:
    """Plain values as they are, parts built."""
    if isinstance(value, Mapping) and "_target_" in value:
        return build(place, value, modules)
    if isinstance(value, Mapping):
        return {key: _argument(f"{place}.{key}", inner, modules) for key, inner in value.items()}
    if isinstance(value, list):
        return [_argument(f"{place}[{number}]", inner, modules) for number, inner in enumerate(value)]
    return value
