"""The parts that a configuration from a stranger may name, and how they are built from plain values.

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
from pydantic import ValidationError

from captioning.config.signatures import check_call
from captioning.config.types import refusals
from captioning.errors import CaptioningError, quoted

PACKAGE = Path(__file__).parents[1]
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parent / "conf"
"""The configuration: inside an installed wheel, else beside the package in a checkout."""
OLD_PATHS: Mapping[str, str] = {
    "captioning.models.parts.pairs.UpDown": "captioning.models.parts.cells.UpDown",
    "captioning.models.parts.pairs.ConditionalGRU": "captioning.models.parts.cells.ConditionalGRU",
    "captioning.models.parts.initial.MLP": "captioning.models.parts.image.MLP",
    "captioning.models.parts.initial.Zero": "captioning.models.parts.image.Zero",
    "captioning.models.parts.inject.Mean": "captioning.models.parts.image.Mean",
    "captioning.models.parts.inject.State": "captioning.models.parts.image.State",
    "captioning.models.parts.transposed.Transposed": "captioning.models.parts.encoders.Transposed",
    "captioning.backbones.small_cnn.SmallCNN": "captioning.backbones.scratch.SmallCNN",
    "captioning.backbones.patches.Patches": "captioning.backbones.scratch.Patches",
}
"""Dotted paths of parts that have moved, and where they are now: stored configurations name the old ones."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def build(place: str, node: Any, modules: Sequence[str] = (), **sizes: Any) -> Any:
    """The part that the plain values `node` describe, as a configuration has them at `place`.

    Args:
        place: `backbone`, `model`, `decoding` or `data.reader`.
        node: `_target_`, and its arguments by name; `_partial_` keeps some for later.
        modules: of the user, whose classes and functions may be named too.
        sizes: further arguments of the outermost part.

    Raises:
        CaptioningError: it names something else, or gives it an argument that it does not take.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise CaptioningError(f"{place}={quoted(node)} describes no part; it must name one by _target_")
    node = renewed(node)
    target = locate(place, node["_target_"], modules)
    for key in node:
        if not isinstance(key, str) or (key.startswith("_") and key not in ("_target_", "_partial_")):
            raise CaptioningError(
                f"{place} has the key {quoted(key)}; of special keys there are _target_ and _partial_"
            )
    partial = node.get("_partial_", False)
    allowed = _partial(place, node["_target_"])
    if not isinstance(partial, bool) or partial not in allowed:
        said = " or ".join(map(quoted, sorted(allowed, reverse=True)))
        raise CaptioningError(f"{place}._partial_={quoted(partial)} is not allowed; it must be {said}")
    settings = {key: value for key, value in node.items() if key not in ("_target_", "_partial_")}
    check_call(place, target, settings, partial=partial)
    arguments = {name: _argument(f"{place}.{name}", value, modules) for name, value in settings.items()}
    arguments |= sizes
    try:
        return functools.partial(target, **arguments) if partial else target(**arguments)
    except CaptioningError:
        raise
    except ValidationError as error:
        raise CaptioningError(refusals(place, error)) from error
    except Exception as error:  # whatever a constructor makes of arguments that do not go together
        raise CaptioningError(f"{place}: {quoted(error)}") from error


def renewed(node: Any) -> Any:
    """Settings with each `_target_` of `OLD_PATHS` replaced."""
    if isinstance(node, Mapping):
        return {
            key: OLD_PATHS.get(value, value) if key == "_target_" and isinstance(value, str) else renewed(value)
            for key, value in node.items()
        }
    return [renewed(value) for value in node] if isinstance(node, list) else node


def locate(place: str, target: Any, modules: Sequence[str] = ()) -> Callable[..., Any]:
    """The class or function called `target`, if it may stand at `place`.

    Raises:
        CaptioningError: it may not, or there is none.
    """
    if not isinstance(target, str):
        raise CaptioningError(f"{place}._target_={quoted(target)} is not allowed; it must be text")
    target = OLD_PATHS.get(target, target)
    module, _, name = target.rpartition(".")
    ours = target in registered(place)
    if not ours and module not in modules:
        raise CaptioningError(
            f"{place} names {quoted(target)}, which is no part of captioning that may stand there, and it is not "
            f"imported. If it is your own, name its module: modules=[{quoted(module)}]"
        )
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # whatever an import of the user's may raise
        raise CaptioningError(f"{place}._target_={quoted(target)} cannot be imported: {quoted(error)}") from error
    # or a stranger could choose among all that the user's module imports
    defined = f"{getattr(found, '__module__', '')}.".startswith(f"{module}.")
    if not (inspect.isclass(found) or inspect.isfunction(found)) or not (ours or defined):
        raise CaptioningError(f"{place} names {quoted(target)}, which is no class or function that {module} defines")
    return found


def check_parts(place: str, node: Any) -> None:
    """Refuses what a checkpoint could not be loaded with, though Hydra builds it: what no module of its own defines.

    Raises:
        CaptioningError: names it.
    """
    for keys, part in _parts(node, tuple(place.split("."))):
        locate(".".join(keys), part["_target_"], [str(part["_target_"]).rpartition(".")[0]])


@functools.cache
def registered(place: str) -> frozenset[str]:
    """What the shipped configuration names at `place`, such as `model`; at `model.score`, all that is within.

    Within a backbone there may be others, since two can stand side by side.
    """
    return frozenset(target for target, _ in _shipped(place))


@functools.cache
def _shipped(place: str) -> frozenset[tuple[str, bool]]:
    """Targets of the shipped configuration at `place`, and whether some of their arguments are kept for later."""
    outermost = ("data", "reader") if place.startswith("data.") else (place.partition(".")[0],)
    within = tuple(place.split(".")) != outermost
    group = CONF / outermost[0]
    found: set[tuple[str, bool]] = set()
    for file in sorted(group.rglob("*.yaml")):
        path = (outermost[0], *file.relative_to(group).parts[:-1])
        for keys, node in _parts(yaml.load(file.read_text(encoding="utf-8"), LOADER), path):
            if (keys != outermost) == within or outermost == ("backbone",):
                found.add((node["_target_"], node.get("_partial_", False)))
    return frozenset(found)


def _partial(place: str, target: str) -> set[bool]:
    """Values that `_partial_` may have: as it is shipped; of the user's own as shipped there, within others any."""
    shipped = _shipped(place)
    ours = {partial for name, partial in shipped if name == target}
    return ours or ({partial for _, partial in shipped} if "." not in place else {False, True})


def _parts(node: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[Any, Any]]]:
    """Every mapping with a `_target_` below a node, and the keys that lead there."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield keys, node
        for key, value in node.items():
            yield from _parts(value, (*keys, str(key)))
    elif isinstance(node, list):
        for value in node:
            yield from _parts(value, (*keys, "[]"))


def _argument(place: str, value: Any, modules: Sequence[str]) -> Any:
    """Plain values as they are, parts built."""
    if isinstance(value, Mapping) and "_target_" in value:
        return build(place, value, modules)
    if isinstance(value, Mapping):
        return {key: _argument(f"{place}.{key}", inner, modules) for key, inner in value.items()}
    if isinstance(value, list):
        return [_argument(f"{place}[{number}]", inner, modules) for number, inner in enumerate(value)]
    return value
