"""The feature border: what every backbone gives and every model reads.

B images, L context vectors of D features, on a grid of h rows and w columns.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ContextSet:
    """An image as a set of annotation vectors a_1..a_L (Show, Attend and Tell, section 3.1.1).

    Attributes:
        vectors: `[B, L, D]`, L in row order of the grid.
        grid: (h, w) with h * w = L.
        mask: `[B, L]` bool, True = may be attended; None where all may.
    """

    vectors: Tensor
    grid: tuple[int, int]
    mask: Tensor | None = None
