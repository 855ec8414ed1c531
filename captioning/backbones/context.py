"""Context sets: the output of every backbone and the input of every model.

B images of H rows and W columns of pixels, L context vectors of D features on a grid of h rows and
w columns.

A missing vector, such as one in the padding of a photograph, is NaN until the context set is made,
so that batches, caches and checksums need no separate mask.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Strict
from torch import Tensor

from captioning.config.types import PositiveInt

Grid = Annotated[tuple[PositiveInt, PositiveInt], Strict(False)]
"""(h, w) of a context set; Hydra passes a list."""


@dataclass(frozen=True)
class ContextSet:
    """An image as a set of annotation vectors a_1..a_L (Show, Attend and Tell, section 3.1.1).

    Those of several images of an example stand one after the other, on a grid each.
    """

    vectors: Tensor  # `[B, L, D]`, L in row order of the grid
    grid: Grid  # (h, w) with h * w = L, of each image
    mask: Tensor | None = None  # `[B, L]` bool, True = may be attended; None: all may
    whole: Tensor | None = None  # `[B, D']`, a vector of the image as a whole, if it has one

    @property
    def images(self) -> int:
        """V, where L = V h w."""
        return max(1, self.vectors.shape[1] // math.prod(self.grid))

    def mean(self) -> Tensor:
        """`[B, D]`, over the unmasked vectors."""
        if self.mask is None:
            return self.vectors.mean(1)
        real = self.mask[..., None].to(self.vectors.dtype)
        return (self.vectors * real).sum(1) / real.sum(1)


def as_maps(weights: Tensor, grid: Grid) -> Tensor:
    """Weights `[..., V h w]` as maps `[..., h, V w]`, those of several images side by side."""
    return weights.unflatten(-1, (-1, *grid)).transpose(-3, -2).flatten(-2)


def on_image(coverage: Tensor, grid: Grid) -> Tensor:
    """`[B, L]` bool: the grid cells on the photographs, where `coverage` `[B, H, W]` is not 0.

    (D) A cell is on a photograph if its centre is, edges included; if a photograph is too narrow
    for any centre, the cells in the middle are.
    """
    covered = coverage > 0
    rows = _centres_on(covered.any(2), grid[0])
    columns = _centres_on(covered.any(1), grid[1])
    return (rows[:, :, None] & columns[:, None, :]).flatten(1)


def _centres_on(covered: Tensor, cells: int) -> Tensor:
    """The cells along a side whose centre is on a `covered` pixel, `[B, cells]`.

    `covered` is `[B, pixels]`.
    """
    numbers = torch.arange(cells, device=covered.device)
    centres = (2 * numbers + 1) * covered.shape[1]  # in pixels, times 2 cells
    # an edge is on both sides
    on = covered[:, centres // (2 * cells)] | covered[:, (centres - 1) // (2 * cells)]
    return on | (~on.any(1, keepdim=True) & (numbers == cells // 2))
