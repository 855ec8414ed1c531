"""What a setting may be, said once: in the annotation of the parameter that it is given to.

`lr: Annotated[float, Gt(0)]` is a number above 0, `Annotated[int, Interval(ge=1, le=8)]` a whole number from 1 to 8;
none is infinite or not a number. `bounded` holds the callers of a function to it, `captioning.config.signatures` what a
configuration gives.
"""

import functools
import inspect
import itertools
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import DocInfo, Ge, Gt, Interval, Le, Lt, MinLen
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    validate_call,
)

from captioning.errors import quoted

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Count = Annotated[int, Interval(ge=1, le=1000)]
"""Of layers, heads or hypotheses; more only fill the memory."""
Samples = Annotated[int, Interval(ge=1, le=100_000)]
"""Of captions, of paths through an image, or of sets of images."""
BatchSize = Annotated[int, Interval(ge=1, le=65_536)]
Width = Annotated[int, Interval(ge=1, le=65_536)]
"""Of a layer."""
Length = Annotated[int, Interval(ge=1, le=10_000)]
"""Of a caption, in words or tokens."""
Workers = Annotated[int, Interval(ge=0, le=1024)]
"""Processes that load data."""
PixelSize = Annotated[int, Interval(ge=1, le=4096)]
"""Side of the square that a photograph becomes."""
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Probability = Annotated[float, Interval(ge=0, le=1)]
Share = Annotated[float, Interval(ge=0, lt=1)]
Seconds = Annotated[float, Interval(gt=0, le=86_400)]
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]


def _named(value: T) -> T:
    if value == "" or "\0" in str(value):
        raise ValueError("must name a file or folder")
    return value


PathText = Annotated[str, AfterValidator(_named), DocInfo("a path")]
Name = Annotated[str | int | float, AfterValidator(_named), DocInfo("text")]

validated = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False))
"""Decorator of a function or of `__init__`: arguments have the types and bounds of their annotations, or a
`pydantic.ValidationError` names each that has not. Strict: no text is a number, and a list is no tuple."""


def refusals(key: str, error: ValidationError) -> str:
    """`key=value: reason` of all that a `ValidationError` refuses, below `key`."""
    errors = error.errors(include_url=False)
    # the choices of a union have the same value and parent
    groups = itertools.groupby(errors, lambda each: (each["loc"][:-1] or each["loc"], id(each["input"])))
    return "; ".join(_refusal(key, parent, list(found)) for (parent, _), found in groups)


def _refusal(key: str, parent: tuple[int | str, ...], errors: list[Any]) -> str:
    path = parent if len(errors) > 1 else errors[0]["loc"]
    name = key + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
    reasons = [each["msg"].removeprefix("Value error, ").replace("Input should", "must") for each in errors]
    return f"{name.removeprefix('.')}={quoted(errors[0]['input'])}: {' or '.join(dict.fromkeys(reasons))}"


_KINDS: Mapping[Any, str] = {
    **{bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"},
    **{None: "null", NoneType: "null"},
}


def bounded(function: F) -> F:
    """Makes a function or a class refuse arguments outside the bounds of their annotations with `ValueError`.

    What has no bounds is the caller's business.
    """
    if inspect.isclass(function):
        function.__init__ = bounded(function.__init__)  # type: ignore[method-assign]
        return function
    signature = inspect.signature(function)

    @functools.cache
    def bounds() -> dict[str, Any]:
        return {name: hint for name, hint in hints_of(function).items() if _is_bounded(hint)}

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name in bounds().keys() & given.keys():
            if allowed := allowed_instead(given[name], bounds()[name], Any):
                raise ValueError(f"{name}={quoted(given[name])} is not allowed; it must be {allowed}")
        return function(*args, **kwargs)

    return typing.cast(F, checked)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function's or a class' parameters, without those that only a type checker can read."""
    called = function.__init__ if inspect.isclass(function) else function
    try:
        return typing.get_type_hints(called, include_extras=True)
    except Exception:  # whatever an annotation may raise
        hints = {name: parameter.annotation for name, parameter in inspect.signature(called).parameters.items()}
        return {
            name: hint
            for name, hint in hints.items()
            if not isinstance(hint, str) and hint is not inspect.Parameter.empty
        }


def allowed_instead(value: Any, hint: Any, part: Any) -> str | None:
    """What is allowed in the place of `value`; None where it is allowed itself.

    Args:
        value: that has come.
        hint: the annotation.
        part: the type of what stands for an object of a class.
    """
    try:
        _adapter(hint, part).validate_python(value)
    except ValidationError:
        return _one_of(hint)
    return None


@functools.cache
def _adapter(hint: Any, part: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(_checkable(hint, part), config=ConfigDict(strict=True, allow_inf_nan=False))
    except (PydanticUserError, TypeError):  # a user's annotation that pydantic cannot read is not judged
        return TypeAdapter(Any)


def _checkable(hint: Any, part: Any) -> Any:
    """`hint` as pydantic checks what comes from YAML: a list is a tuple too, a text a path."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in (int, float, bool, str, None, NoneType) or origin is Literal:
        return hint
    if hint is Path:
        return PathText | Path
    if origin is Annotated:
        return Annotated[_checkable(args[0], part), *args[1:]]
    if origin in (Union, UnionType):
        return Union[tuple(_checkable(choice, part) for choice in args)]  # noqa: UP007 - they come in a tuple
    if origin in (Sequence, list, tuple):
        each = tuple(a if a is ... else _checkable(a, part) for a in args)
        kind = tuple if origin is tuple else list
        return Annotated[kind[each], BeforeValidator(lambda given: kind(given) if _is_list(given) else given)]
    if origin in (Mapping, dict):
        return origin[*(_checkable(a, part) for a in args)]
    kind = origin or hint
    if not inspect.isclass(kind) or kind in (Any, object):
        return Any
    if issubclass(kind, Mapping):
        return dict
    return part | list if issubclass(kind, Iterable) else part


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_bounded(hint: Any) -> bool:
    return get_origin(hint) in (Annotated, Literal) or any(map(_is_bounded, get_args(hint)))


def _one_of(hint: Any) -> str:
    choices = list(dict.fromkeys(_choices(hint)))
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"


def _choices(hint: Any) -> list[str]:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return [quoted(choice) for choice in args]
    if origin in (Union, UnionType):
        return [name for choice in args for name in _choices(choice)]
    if origin is Annotated:
        bounds = [bound for group in args[1:] for bound in (group if isinstance(group, Interval) else [group])]
        said = [bound.documentation for bound in bounds if isinstance(bound, DocInfo)]
        some = any(isinstance(bound, MinLen) for bound in bounds)
        named = [choice.replace("a list", "a list of one or more") if some else choice for choice in _choices(args[0])]
        return said or [f"{name}{_bounds(bounds)}" for name in named]
    if origin in (Sequence, list, tuple):
        size = "" if origin is not tuple or ... in args else f" of {len(args)}"
        kinds = {each: None for each in args if each is not ...}
        return [f"a list{size}{''.join(f', each {_one_of(each)}' for each in kinds if len(kinds) == 1)}"]
    if origin in (Mapping, dict):
        return ["settings by their names"]
    # Of other types YAML can only say how to build them.
    return [_KINDS.get(hint, "settings with a _target_")]


def _bounds(bounds: Sequence[Any]) -> str:
    """What follows "a number"."""
    ends = {type(bound): bound for bound in bounds}
    if Ge in ends:
        low = ends[Ge].ge
        if Le in ends:
            return f" from {low} to {ends[Le].le}"
        return f" from {low} to below {ends[Lt].lt}" if Lt in ends else f" of at least {low}"
    words = {Gt: ("above", "gt"), Le: ("at most", "le"), Lt: ("below", "lt")}
    said = [f"{word} {getattr(ends[kind], name)}" for kind, (word, name) in words.items() if kind in ends]
    return f" {' and '.join(said)}" if said else ""
