"""Parts: settings with a `_target_`, checked against what may stand at their key, and built.

The annotation of the parameter that a part is given for decides which classes may stand there. A
checkpoint's configuration is data: it names classes of this package, or of modules of the user.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import ValidationError

import captioning.config.resolvers  # noqa: F401 (registers those of conf)
from captioning.config.types import Config, Modules, format_errors, locate, map_values, validated
from captioning.errors import CaptioningError, no_setting, quoted

PACKAGE = Path(__file__).parents[1]
# inside an installed wheel, else beside the package in a checkout
CONF = PACKAGE / "conf" if (PACKAGE / "conf").is_dir() else PACKAGE.parent / "conf"
SPECIAL = {"_target_", "_partial_"}


def drop_inherited(config: DictConfig, given: Sequence[str], extra: Collection[str]) -> None:
    """Leave out what a class named by a `given` `_target_` does not take, unless it is given too.

    The part that stands there by default has left it. Settings in `extra` are no arguments.
    """
    for key in given:
        group, _, last = key.rpartition(".")
        if last != "_target_":
            continue
        part = OmegaConf.select(config, group)
        with suppress(ValueError), open_dict(part):  # a builtin's, which may stand nowhere
            for name in _not_taken(target_of(group, part[last], None), part):
                ours = name in SPECIAL or f"{group}.{name}" in extra
                if not ours and not any(f"{k}.".startswith(f"{group}.{name}.") for k in given):
                    del part[name]


def without_weights(backbone: Any) -> Any:
    """Return settings that build a backbone with random weights, without files or downloads."""
    if not isinstance(backbone, Mapping):
        return backbone
    return {
        key: None if key == "weights" else without_weights(value) for key, value in backbone.items()
    }


@dataclass(frozen=True)
class CheckedPart:
    """A class or function, and arguments that it takes: checked, not yet called."""

    key: str
    target: Callable[..., Any]
    partial: bool  # more arguments will come when it is called
    arguments: Config  # plain values, with parts among them

    def build(self, **more: Any) -> Any:
        """Call it, after the parts among its arguments."""
        arguments = map_values(
            self.arguments, lambda value: value.build() if isinstance(value, CheckedPart) else value
        )
        if self.partial:
            return functools.partial(self.target, **arguments, **more)
        with preparing(self.key, self.arguments.items()):
            return self.target(**arguments, **more)


@contextmanager
def preparing(key: str, arguments: Iterable[tuple[str, Any]] = ()) -> Iterator[None]:
    """Name the part at `key` in whatever it raises until it is ready: it may be the user's own."""
    try:
        yield
    except CaptioningError:
        raise
    except ValidationError as error:
        raise CaptioningError(format_errors(key, error.errors())) from error
    except Exception as error:
        where = "" if f"{key}." in str(error) else f"{key}: "
        about = ""
        if not isinstance(error, ValueError):  # whose text alone would tell little
            given = ", ".join(
                f"{key}.{name}={quoted(value)}"
                for name, value in arguments
                if not isinstance(value, CheckedPart)
            )
            about = f", a {type(error).__name__} with {quoted(given)}"
        raise CaptioningError(f"{where}{quoted(error)}{about}") from error


def build(key: str, base: Any, node: Any, modules: Modules = (), **sizes: Any) -> Any:
    """Check and build the part at `key`, with more arguments of the outermost one."""
    return check_part(key, base, node, modules).build(**sizes)


def check_part(key: str, base: Any, node: Any, modules: Modules = ()) -> CheckedPart:
    """Refuse settings that name no class that may stand at `key`, or arguments that it rejects.

    Args:
        key: of the settings in the configuration.
        base: the annotation that the part must fit; `Callable[..., X]` is called later.
        node: the settings.
        modules: of the user, which parts may come from too; None for any, as in one's own command.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise CaptioningError(f"{key}={quoted(node)} must be settings with a _target_")
    target, partial = node["_target_"], node.get("_partial_", False)
    constructor = target_of(key, target, modules)
    fitting = [hint for hint in _alternatives(base) if _fits(constructor, hint)]
    if not fitting or (fitting == [Any] and modules is not None and _is_ours(target)):
        raise CaptioningError(f"{key} names {quoted(target)}, which may not stand there")
    # What `Callable[..., X]` stands for is called later.
    later = {get_origin(h) is Callable and get_args(h)[0] is ... for h in fitting if h is not Any}
    if not isinstance(partial, bool) or (later and partial not in later):
        raise CaptioningError(f"{key}._partial_={quoted(partial)} is not as in conf/")
    plain = {str(name): value for name, value in node.items() if name not in SPECIAL}
    parameters = inspect.signature(constructor).parameters
    arguments = {}
    for name, value in plain.items():
        hint = parameters[name].annotation if name in parameters else Any
        arguments[name] = _with_parts(f"{key}.{name}", hint, value, modules)
    checked = {name: value for name, value in plain.items() if not any(each_part(name, value))}
    validate_arguments(key, constructor, checked, arguments)
    return CheckedPart(key, constructor, partial, arguments)


def validate_arguments(
    key: str, target: Callable[..., Any], arguments: Config, names: Config | None = None
) -> None:
    """Refuse `names` that a function or class does not take, and arguments of other types.

    Types count for functions of ours and of Lightning, and for all that are `validated`.
    """
    if unknown := _not_taken(target, names or arguments):
        parameters = inspect.signature(target).parameters
        # what has no default is often given by this package, as the parameters of an optimiser are
        optional = {name for name, each in parameters.items() if each.default is not each.empty}
        known = {*(settings_of(target) or optional), *arguments} & parameters.keys()
        raise CaptioningError(no_setting(key, min(unknown), [*known]))
    function: Any = target.__init__ if inspect.isclass(target) else target
    if not target.__module__.startswith("lightning."):
        function = getattr(function, "raw_function", None)
    if function is None:
        return
    try:
        _checked_call(function)(**arguments)
    except ValidationError as error:
        wrong = [detail for detail in error.errors() if not detail["type"].startswith("missing")]
        if wrong:
            raise CaptioningError(format_errors(key, wrong)) from error


@functools.cache
def _checked_call(function: Callable[..., Any]) -> Callable[..., None]:
    """A function that takes the same arguments and does nothing else."""
    return validated(functools.wraps(function)(lambda *given, **settings: None))


def _not_taken(target: Callable[..., Any], names: Iterable[Any]) -> set[str]:
    """The names that are no parameters of a function or class."""
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return set()
    return {*names} - parameters.keys()


@dataclass(frozen=True)
class Setting:
    """A setting as the function or class declares it that takes it.

    Attributes:
        hint: its type, with bounds.
        text: what it does.
    """

    hint: Any
    text: str
    default: Any


def settings_of(target: Callable[..., Any]) -> dict[str, Setting]:
    """The settings of a function or class: its parameters with a text, `Annotated[TYPE, "..."]`."""
    settings = {}
    for name, parameter in parameters_of(target).items():
        for note in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(note, str):
                settings[name] = Setting(parameter.annotation, note, parameter.default)
    return settings


def parameters_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function or class, their annotations not as texts if possible."""
    try:
        return inspect.signature(target, eval_str=True).parameters
    except NameError:  # of types that are imported for a type checker alone
        return inspect.signature(target).parameters


def target_of(key: str, target: Any, modules: Modules = ()) -> Any:
    """Import the class or function `target` from this package or one of `modules`."""
    if modules is not None and _is_ours(target):
        modules = [str(target).rpartition(".")[0]]
    return locate(f"{key}._target_", str(target), modules)


def _is_ours(target: object) -> bool:
    return str(target).startswith("captioning.")


def _alternatives(hint: Any) -> list[Any]:
    """The types that an annotation allows, without None.

    Example:
        `Annotated[Backbone | None, ...]` allows `[Backbone]`, and no annotation `[Any]`.
    """
    if get_origin(hint) is Annotated:
        return _alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [alternative for inner in get_args(hint) for alternative in _alternatives(inner)]
    unknown = isinstance(hint, str) or hint is inspect.Parameter.empty
    return [] if hint is type(None) else [Any if unknown else hint]


def _fits(target: Callable[..., Any], hint: Any) -> bool:
    """Whether a class, or what a function returns, is as the annotation says.

    Example:
        `Backbone`: a subclass of it, or a function that returns one.
        `Callable[..., Optimizer]`: likewise, as it is called later.
        `Callable[[Tensor, Tensor], Tensor]`: a class whose objects return a tensor when called.
    """
    if hint is Any:
        return True
    if get_origin(hint) is not Callable:
        return _gives(target, target, hint)
    given, result = get_args(hint)
    if given is Ellipsis:
        return _gives(target, target, result)
    mro = target.__mro__ if inspect.isclass(target) else ()
    called = next((vars(base)["__call__"] for base in mro if "__call__" in vars(base)), None)
    return called is not None and _gives(target, called, result)


def _gives(target: Callable[..., Any], called: Any, result: Any) -> bool:
    """Whether `called`, which is `target` or its `__call__`, gives an object of a type."""
    if not inspect.isclass(called):  # the user need not annotate
        called = get_type_hints(called).get("return", None if _is_ours(target.__module__) else Any)
    if called in (Any, result):
        return True
    return inspect.isclass(called) and inspect.isclass(result) and issubclass(called, result)


def _with_parts(key: str, hint: Any, value: Any, modules: Modules) -> Any:
    """The value, with a `CheckedPart` in the place of each mapping that names a target."""
    if isinstance(value, Mapping) and "_target_" in value:
        return check_part(key, hint, value, modules)
    inner = next((args[-1] for args in map(get_args, _alternatives(hint)) if args), Any)
    if isinstance(value, Mapping):
        return {
            name: _with_parts(f"{key}.{name}", inner, part, modules) for name, part in value.items()
        }
    if isinstance(value, list):
        return [
            _with_parts(f"{key}[{row}]", inner, part, modules) for row, part in enumerate(value)
        ]
    return value


def class_name(part: Mapping[str, Any]) -> str:
    """The name of the class of a part, without its module."""
    return str(part["_target_"]).rpartition(".")[2]


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
