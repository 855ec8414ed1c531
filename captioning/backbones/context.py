"""The feature border: what every backbone gives and every model reads.

B images, L context vectors of D features, on a grid of h rows and w columns.
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from pydantic import Strict
from torch import Tensor

Side = Annotated[int, Ge(1)]
Grid = Annotated[tuple[Side, Side], Strict(False)]
"""(h, w) of a context set; Hydra passes a list."""


@dataclass(frozen=True, slots=True)
class ContextSet:
    """An image as a set of annotation vectors a_1..a_L (Show, Attend and Tell, section 3.1.1).

    Attributes:
        vectors: `[B, L, D]`, L in row order of the grid.
        grid: (h, w) with h * w = L.
        mask: `[B, L]` bool, True = may be attended; None where all may.
    """

    vectors: Tensor
    grid: Grid
    mask: Tensor | None = None

    def mean(self) -> Tensor:
        """`[B, D]`, over the vectors that may be attended.

        Raises:
            ValueError: there are none.
        """
        if not self.vectors.shape[1]:
            raise ValueError(f"the context set of grid {self.grid} is empty; a mean needs at least one vector")
        if self.mask is None:
            return self.vectors.mean(dim=1)
        real = self.mask[..., None].to(self.vectors.dtype)
        return (self.vectors * real).sum(dim=1) / real.sum(dim=1)
