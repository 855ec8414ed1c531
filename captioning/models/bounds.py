"""What the sizes of networks may be: annotations that a configuration is checked by before anything is built."""

from typing import Annotated

from annotated_types import Gt, Interval

Width = Annotated[int, Interval(ge=1, le=65_536)]
"""Of a layer."""
Count = Annotated[int, Interval(ge=1, le=1000)]
"""Of layers or heads; more only fill the memory."""
Length = Annotated[int, Interval(ge=1, le=10_000)]
"""Of a caption, in tokens."""
Share = Annotated[float, Interval(ge=0, lt=1)]
Positive = Annotated[float, Gt(0)]
