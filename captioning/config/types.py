"""Types of settings with their bounds, and the validation of values against them by pydantic."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Gt, Interval
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError, validate_call

from captioning.errors import CaptioningError, quoted

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

MAX_LISTED = 5
"""Values that an error names."""


def _named(value: T) -> T:
    if value == "" or "\0" in str(value):
        raise ValueError("must name a file or folder")
    return value


def _described(node: T) -> T:
    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        raise ValueError("must have a _target_")
    return node


PathText = Annotated[str, AfterValidator(_named)]
Name = Annotated[str | int | float, AfterValidator(_named)]
Part = Annotated[dict[str, Any], AfterValidator(_described)]
"""Settings of an object that is built from them."""

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
validated = validate_call(config=STRICT)
"""Decorator of a function or of `__init__`: arguments have the types and bounds of their annotations, or a
`pydantic.ValidationError` names each that has not. Strict: no text is a number, and a list is no tuple."""


def check_value(key: str, value: Any, hint: Any) -> None:
    """Refuse the value of a setting that does not fit its type."""
    try:
        TypeAdapter(hint, config=STRICT).validate_python(value)
    except ValidationError as error:
        group, _, name = key.rpartition(".")
        errors = [{**each, "loc": (name, *each["loc"])} for each in error.errors(include_url=False)]
        raise CaptioningError(refusals(group, errors)) from error


def refusals(key: str, errors: Iterable[Any]) -> str:
    """`key.name=value: reason` of each of a `ValidationError`'s errors; the choices of a union are one."""

    def group(error: Any) -> tuple[Any, str]:
        if error["type"] == "missing" or not error["loc"]:  # the value may be as large as a file
            return error["loc"], ""
        return error["loc"][:-1] or error["loc"], quoted(error["input"])

    groups = itertools.islice(itertools.groupby(errors, group), MAX_LISTED)
    return "; ".join(_refusal(key, list(found)) for _, found in groups)


def _refusal(key: str, errors: list[Any]) -> str:
    path = errors[0]["loc"][:-1] if len(errors) > 1 else errors[0]["loc"]
    name = (key + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)).removeprefix(".")
    messages = (str(error["msg"]).removeprefix("Value error, ").replace("Input should", "must") for error in errors)
    reasons = " or ".join(dict.fromkeys(messages))
    value = "" if errors[0]["type"] == "missing" else f"={quoted(errors[0]['input'])}"
    return f"{name}{value}: {reasons}" if name else reasons  # no name in a file that was cut off
