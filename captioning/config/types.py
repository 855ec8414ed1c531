"""Types of settings with their bounds, and the validation of values against them."""

import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform

from annotated_types import DocInfo, Ge, Gt, Interval, MinLen
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Strict,
    TypeAdapter,
    ValidationError,
    validate_call,
)

from captioning.errors import CaptioningError, did_you_mean, naming, ours_for, quoted

# messages have no addresses of the library's pages
os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")

T = TypeVar("T")


def between(least: float, most: float) -> Interval:
    """Bounds of a number, both included."""
    return Interval(ge=least, le=most)


# of layers, heads or hypotheses; more only fill the memory
Count = Annotated[int, between(1, 1000)]
# of captions, paths through an image, or sets of images
Samples = Annotated[int, between(1, 100_000)]
BatchSize = Annotated[int, between(1, 65_536)]
Width = Annotated[int, between(1, 65_536)]  # of a layer, or of a set of regions
WidthOrZero = Annotated[int, between(0, 65_536)]
Length = Annotated[int, between(1, 10_000)]  # of a caption, in words or tokens
Workers = Annotated[int, between(0, 1024)]  # processes that load data
PixelSize = Annotated[int, between(1, 4096)]  # side of the square that a photograph becomes
MOST_IMAGES = 64  # of an example
Images = Annotated[int, between(1, MOST_IMAGES)]
Positive = Annotated[float, Gt(0)]
PositiveInt = Annotated[int, Ge(1)]
NotNegative = Annotated[float, Ge(0)]
NotNegativeInt = Annotated[int, Ge(0)]
Probability = Annotated[float, between(0, 1)]
Share = Annotated[float, Interval(ge=0, lt=1)]
Seconds = Annotated[float, Interval(gt=0, le=86_400)]
Seed = Annotated[int, between(0, 2**32 - 1)]


def _named(value: T) -> T:
    if value == "" or "\0" in str(value):
        raise ValueError("must name a file or folder")
    return value


def given_path(setting: object) -> Path:
    """The path that a setting names; ~ and ~USER are home folders, of known users."""
    path = Path(str(setting))
    try:
        return path.expanduser()
    except (RuntimeError, ValueError):  # nobody is called so
        return path


def rising(ends: tuple[T, T]) -> tuple[T, T]:
    """Refuse two numbers of which the first is not the smaller."""
    low, high = ends
    if low >= high:  # type: ignore[operator]
        raise ValueError("must be two numbers, the smaller first")
    return ends


def _distinct(values: list[T]) -> list[T]:
    if any(values.count(value) > 1 for value in values):
        raise ValueError("must name each once")
    return values


Distinct = Annotated[list[T], MinLen(1), AfterValidator(_distinct)]
PixelRange = Annotated[
    tuple[int, int],
    Strict(False),
    AfterValidator(rising),
    DocInfo("values of black and white, such as [0, 4095] for 12 bits"),
]
UserPath = Annotated[Path, Strict(False), AfterValidator(given_path)]
PathText = Annotated[str, AfterValidator(_named)]
GivenPath = Annotated[UserPath, BeforeValidator(_named)]  # of a setting that is a path alone
Name = Annotated[str | int | float, AfterValidator(_named)]
Config = dict[str, Any]
"""Settings as plain values."""
Modules = Sequence[str] | None
"""Of the user, that parts may come from too; None for any, as in one's own command."""
PartConfig = Config  # of an object that is built from them (`registry.check_part`)


class Role(Enum):
    """What a setting is beside its type, as its annotation says: `Free[bool]`."""

    FREE = "it does not change the result of a run"
    PLACE = "a folder, which does not change it either; other settings are derived from it"
    BESIDE = "it is no argument of the part in whose group it stands"


Free = Annotated[T, Role.FREE]
Place = Annotated[T, Role.PLACE]
Beside = Annotated[T, Role.BESIDE]

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
validated = validate_call(config=STRICT)
"""Decorator of a function or of `__init__`: `pydantic.ValidationError` names each argument that
does not fit.
"""


@dataclass_transform(frozen_default=True)
def validated_class(cls: type[T]) -> type[T]:
    """Decorator of a class that becomes a frozen dataclass whose `__init__` is `validated`."""
    made = dataclass(frozen=True)(cls)
    made.__init__ = validated(made.__init__)  # type: ignore[method-assign]
    return made


def map_values(node: Any, change: Callable[[Any], Any]) -> Any:
    """Settings, with `change` of each value in their groups and lists."""
    if isinstance(node, Mapping):
        return {key: map_values(value, change) for key, value in node.items()}
    if isinstance(node, list):
        return [map_values(value, change) for value in node]
    return change(node)


def check_value(key: str, value: Any, hint: Any) -> None:
    """Refuse the value of a setting that does not fit its type."""
    try:
        TypeAdapter(hint, config=STRICT).validate_python(value)
    except ValidationError as error:
        group, _, name = key.rpartition(".")
        errors = [{**detail, "loc": (name, *detail["loc"])} for detail in error.errors()]
        raise CaptioningError(format_errors(group, errors)) from error


def locate(key: str, path: str, modules: Modules) -> Any:
    """Import the class or function `path` that a setting names.

    Args:
        key: of the setting.
        path: such as `my_model.Network`.
        modules: that it may be defined in, and not only imported by; None for any.
    """
    module, _, name = path.rpartition(".")
    if modules is not None and module not in modules:
        raise CaptioningError(
            f"{key} names {quoted(path)}, which is no part of captioning that may stand there. "
            f"If it is your own, name its module: modules=[{quoted(module)}]"
        )
    with naming(f"{key}={quoted(path)} cannot be imported"):
        located = getattr(import_module(module), name)
    # Otherwise a stranger could choose among all that a module imports.
    defined = f"{getattr(located, '__module__', '')}.".startswith(f"{module}.")
    callable_ = inspect.isclass(located) or inspect.isroutine(located)
    if not callable_ or not (modules is None or defined):
        raise CaptioningError(
            f"{key} names {quoted(path)}, which is no class or function that {module} defines"
        )
    return located


def format_errors(key: str, errors: Iterable[Any]) -> str:
    """Format the errors of a `ValidationError`, each as `key.name=value: reason`.

    The choices of a union are one.
    """

    def group(error: Any) -> tuple[Any, str]:
        if error["type"].startswith("missing") or not error["loc"]:
            return error["loc"], ""  # the value may be as large as a file
        return error["loc"][:-1] or error["loc"], quoted(error["input"])

    groups = itertools.islice(itertools.groupby(errors, group), 5)
    return "; ".join(_refusal(key, list(alike)) for _, alike in groups)


def _refusal(key: str, errors: list[Any]) -> str:
    path = errors[0]["loc"][:-1] if len(errors) > 1 else errors[0]["loc"]
    name = (
        key + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    ).removeprefix(".")
    messages = (
        str(error["msg"])
        .removeprefix("Value error, ")
        .replace("Input should", "must")
        .replace("Field required", "must be set")
        for error in errors
    )
    reasons = " or ".join(dict.fromkeys(messages))
    given = errors[0]["input"]
    is_group = isinstance(given, Mapping) or errors[0]["type"].startswith("missing")
    value = "" if is_group else f"={quoted(given)}"
    if meant := ours_for(f"{name}{value}"):
        reasons += f".{did_you_mean('', (), meant)}"
    return f"{name}{value}: {reasons}" if name else reasons  # no name in a file that was cut off
