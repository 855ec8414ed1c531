"""What the sizes of networks may be: annotations that the configuration is checked by before anything is built."""

from typing import Annotated

from annotated_types import Gt, Interval

Width = Annotated[int, Interval(ge=1, le=65_536)]
"""Features of a layer."""

Depth = Annotated[int, Interval(ge=1, le=1000)]
"""Layers, heads."""

Probability = Annotated[float, Interval(ge=0, lt=1)]
"""Of dropout."""

Positive = Annotated[float, Gt(0)]
