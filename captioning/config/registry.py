"""The parts that a configuration may name, and how they are built from plain values.

A checkpoint's configuration is data: it names what `conf/` names at the same place, or what modules
of the user define.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hydra._internal.utils import _locate as located  # `get_object` logs what it also raises
from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from captioning.config.types import refusals, validated
from captioning.errors import CaptioningError, no_setting, quoted

T = TypeVar("T")

PACKAGE = Path(__file__).parents[1]
# inside an installed wheel, else beside the package in a checkout
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parent / "conf"
BESIDE = {
    "model": ("title", "size"),
    "optimizer": ("backbone_lr",),
    "decoding": ("beam_widths",),
}  # which are no arguments of the part
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# tokens of so many words and their end, or BOS; None where a command has no `data.max_words`
OmegaConf.register_new_resolver(
    "with_end", lambda words: words + 1 if isinstance(words, int) else words, replace=True
)


def _sized(published: T, small: T, *, _root_: DictConfig) -> T:
    size = (_root_.get("model") or {}).get("size", "published")
    if size not in ("published", "small"):
        raise CaptioningError(f"model.size={quoted(size)} is not allowed: published or small")
    return small if size == "small" else published


# of the two sizes that models of `conf/model` have
OmegaConf.register_new_resolver("sized", _sized, replace=True)
# what a run's name adds where the model is a small one; a user's own model may have no sizes
OmegaConf.register_new_resolver(
    "small_suffix",
    lambda _root_: "_small" if str(_root_.model.get("title")).endswith(", small") else "",
    replace=True,
)


def of_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose parts have settings for their constructors alone, without those of
    `BESIDE`.
    """
    parts = {part: config[part] for part in BESIDE if isinstance(config.get(part), Mapping)}
    return {
        **config,
        **{
            part: {k: v for k, v in node.items() if k not in BESIDE[part]}
            for part, node in parts.items()
        },
    }


def without_weights(backbone: Any) -> Any:
    """Return settings that build a backbone with random weights, without files or downloads."""
    if not isinstance(backbone, Mapping):
        return backbone
    return {
        key: None if key == "weights" else without_weights(value) for key, value in backbone.items()
    }


def build(
    place: str, node: Any, modules: Sequence[str] | None = (), *given: Any, **sizes: Any
) -> Any:
    """Build the part at the key `place`; `given` and `sizes` are arguments of the outermost part.

    `_partial_` keeps arguments for later. `modules` of the user may be named too, with None all
    that there are.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise CaptioningError(f"{place}={quoted(node)} must be settings with a _target_")
    target = locate(place, node["_target_"], modules)
    partial, special = (
        node.get("_partial_", False),
        [key for key in node if str(key).startswith("_")],
    )
    if not {*special} <= {"_target_", "_partial_"} or not _may_be(
        partial, place, node["_target_"], modules
    ):
        raise CaptioningError(
            f"{place}._partial_={quoted(partial)}, of the special keys {quoted(special)}, is not "
            "as in conf/"
        )
    plain = {str(name): value for name, value in node.items() if name not in special}
    settings = {name: _argument(f"{place}.{name}", value, modules) for name, value in plain.items()}
    if partial:
        judge(place, target, settings)
        return functools.partial(target, *given, **settings, **sizes)
    judge(place, target, settings)
    try:
        return target(*given, **settings, **sizes)
    except CaptioningError:
        raise
    except ValidationError as error:
        raise CaptioningError(refusals(place, error.errors(include_url=False))) from error
    except (
        Exception
    ) as error:  # a constructor may raise anything if its arguments do not go together
        values = ", ".join(f"{place}.{name}={quoted(value)}" for name, value in plain.items())
        told = (
            f", with {quoted(values)}" if isinstance(error, TypeError) else ""
        )  # which names no argument
        where = "" if f"{place}." in str(error) else f"{place}: "
        raise CaptioningError(f"{where}{quoted(error)}{told}") from error


def _argument(place: str, value: Any, modules: Sequence[str] | None) -> Any:
    """Plain values as they are, parts built."""
    if isinstance(value, Mapping) and "_target_" in value:
        return build(place, value, modules)
    if isinstance(value, Mapping):
        return {key: _argument(f"{place}.{key}", inner, modules) for key, inner in value.items()}
    if isinstance(value, list):
        return [
            _argument(f"{place}[{number}]", inner, modules) for number, inner in enumerate(value)
        ]
    return value


def judge(place: str, target: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Validate some arguments of a `validated` function, or of a class of Lightning, without
    calling it.
    """
    _check_names(place, target, settings)
    function: Any = target.__init__ if inspect.isclass(target) else target
    if not target.__module__.startswith("lightning."):
        function = getattr(function, "raw_function", None)
    if function is None:
        return
    try:
        validated(functools.wraps(function)(lambda *given, **settings: None))(**settings)
    except ValidationError as error:
        wrong = [
            each
            for each in error.errors(include_url=False)
            if not each["type"].startswith("missing")
        ]
        if wrong:
            raise CaptioningError(refusals(place, wrong)) from error


def _check_names(place: str, target: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    try:
        known = inspect.signature(target).parameters
    except (TypeError, ValueError) as error:  # some that Python itself has
        raise CaptioningError(
            f"{place} names {quoted(target.__qualname__)}, which is not built from settings"
        ) from error
    unknown = settings.keys() - known.keys()
    if unknown and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
        raise CaptioningError(no_setting(place, min(unknown), [*known]))


def locate(place: str, target: Any, modules: Sequence[str] | None = ()) -> Callable[..., Any]:
    """The class or function called `target`, if it may stand at `place`."""
    module, _, name = str(target).rpartition(".")
    ours = modules is None or (isinstance(target, str) and target in registered(place))
    if not ours and module not in (modules or ()):
        raise CaptioningError(
            f"{place} names {quoted(target)}, which is no part of captioning that may stand there. "
            "If it is your own, "
            f"name its module: modules=[{quoted(module)}]"
        )
    try:
        found = located(target) if modules is None else getattr(import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        raise CaptioningError(
            f"{place}._target_={quoted(target)} cannot be imported: {quoted(error)}"
        ) from error
    # or a stranger could choose among all that the user's module imports
    defined = f"{getattr(found, '__module__', '')}.".startswith(f"{module}.")
    if not callable(found) or not (
        ours or (defined and (inspect.isclass(found) or inspect.isfunction(found)))
    ):
        raise CaptioningError(
            f"{place} names {quoted(target)}, which is no class or function that {module} defines"
        )
    return found


def modules_of(node: Any) -> list[str]:
    """Return the modules of all parts, needed to load a checkpoint with these settings."""
    return [str(part["_target_"]).rpartition(".")[0] for _, part in each_part("", node)]


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


def defaults(key: str, node: Any) -> dict[str, Any]:
    """Return defaults of optional settings of the parts below `key`, by key."""
    return {
        f"{place}.{name}": parameter.default
        for place, part in each_part(key, node)
        for name, parameter in inspect.signature(located(part["_target_"])).parameters.items()
        if parameter.default is not parameter.empty
    }


@functools.cache
def registered(place: str) -> Mapping[str, set[bool]]:
    """Targets of the shipped configuration at `place` (inner ones: anywhere within it), and their
    `_partial_`.
    """
    outermost = "data.reader" if place.startswith("data.") else place.partition(".")[0]
    found: dict[str, set[bool]] = {}
    for file in sorted((CONF / outermost.partition(".")[0]).rglob("*.yaml")):
        key = ".".join(file.relative_to(CONF).parts[:-1])
        for each, node in each_part(key, yaml.load(file.read_text(encoding="utf-8"), LOADER)):
            if (each != outermost) == (place != outermost) or outermost == "backbone":
                found.setdefault(node["_target_"], set()).add(node.get("_partial_", False))
    return found


def _may_be(partial: Any, place: str, target: str, modules: Sequence[str] | None) -> bool:
    """Check `_partial_` against the shipped parts; nested parts of the user are free."""
    if modules is None or not isinstance(partial, bool):
        return isinstance(partial, bool)
    shipped = registered(place)
    usual = {False, True} if "." in place else set[bool]().union(*shipped.values())
    return partial in shipped.get(target, usual)
