"""Bounds in annotations, held against callers in Python; `test_check` holds configurations against them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from annotated_types import Gt, Interval, MinLen
from omegaconf import OmegaConf

from captioning.config.types import bounded


@bounded
def function(
    values: Any,
    rate: Annotated[float, Gt(0)],
    pair: tuple[Annotated[int, Interval(ge=0, lt=5)], int] = (0, 1),
    names: Annotated[list[Literal["a", "b"]], MinLen(1)] | None = None,
    width: int = 1,
) -> str:
    """Documented."""
    return f"{rate} {pair}"


@bounded
@dataclass(frozen=True, slots=True)
class Settings:
    count: Annotated[int, Interval(ge=1, le=3)] = 1


def test_what_is_within_bounds_arrives_as_it_came() -> None:
    assert function(np.zeros(3), 2) == "2 (0, 1)"
    pair = OmegaConf.create([4, 10**9])  # a list as Hydra gives it
    assert function(None, rate=0.5, pair=pair, names=("a",)) == "0.5 [4, 1000000000]"
    assert function(None, 1, width=0.5) == "1 (0, 1)"  # type: ignore[arg-type]  # without bounds, the caller's business
    assert (Settings(3).count, function.__doc__) == (3, "Documented.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 0}, "rate=0 is not allowed; it must be a number above 0"),
        ({"rate": float("nan")}, "rate=nan is"),
        ({"rate": float("inf")}, "rate=inf is"),
        ({"rate": True}, "rate=true is"),
        ({"rate": 1, "pair": (5, 0)}, r"pair=\(5, 0\) is not allowed; it must be a list of 2$"),
        ({"rate": 1, "names": []}, "names=.* must be one of a list of one or more, each one of a, b, null"),
        ({"rate": 1, "names": "a"}, "names=a is"),
    ],
)
def test_what_is_not_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(None, **arguments)


def test_a_class_is_bounded_where_it_is_called() -> None:
    with pytest.raises(ValueError, match="count=4 is not allowed; it must be a whole number from 1 to 3"):
        Settings(4)
