"""Relative positions in self-attention over a grid: a bias of each head for every pair of places.

A grid of (h, w) has L = h w places; H heads.
"""

import math

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.models.parts.numerics import Part


def biased(
    relative: nn.Module, context: ContextSet, allowed: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Biases `[H, L, L]`, or `[B, H, L, L]` with -inf where `allowed` `[B, 1, 1, L]` is False.

    They are added to the scores before the softmax. `relative` gives them for a grid, from query to
    key in row order.
    """
    bias = relative(context.grid).to(dtype)
    if context.images > 1:  # between two images as within one
        bias = bias.repeat(1, context.images, context.images)
    return bias if allowed is None else bias.masked_fill(~allowed, float("-inf"))


class Geometry(Part):
    """Geometric bias of cells as boxes (Herdade et al. 2019, Eq. 6 and 7).

    log max(ReLU(w . Emb(lambda) + b), 1e-6).

    lambda = (log max(|dx| / width, 1e-3), the same of y, 0, 0), as all cells are equal; Emb has the
    sine and cosine of 100 lambda at 8 wavelengths 1000^(k / 8). The bias is symmetric: left and
    right are one. b = 1 at first, so that attention starts near the one without geometry (D).
    """

    def __init__(self, grid: Grid, heads: int):
        super().__init__()
        self.linear = nn.Linear(64, heads)

    def initialise(self) -> None:
        nn.init.ones_(self.linear.bias)

    def forward(self, grid: Grid) -> Tensor:
        away = [
            torch.arange(size, device=self.linear.weight.device).float().clamp(min=1e-3).log()
            for size in grid
        ]
        down, right = torch.meshgrid(*away, indexing="ij")
        none = torch.zeros_like(right)
        rates = 1000.0 ** -(torch.arange(8, device=none.device) / 8)
        angles = (100 * torch.stack((right, down, none, none), dim=-1)[..., None] * rates).flatten(
            -2
        )
        embedding = torch.cat((angles.sin(), angles.cos()), dim=-1).to(self.linear.weight.dtype)
        bias = self.linear(embedding).relu().clamp(min=1e-6).log()
        rows, columns = _differences(grid, none.device)
        return bias[rows.abs(), columns.abs()].permute(2, 0, 1)


class RelativeTable(nn.Module):
    """A learned number for every difference of rows and columns, 0 at first (Liu et al. 2021,
    "Swin", section 3.2).
    """

    def __init__(self, grid: Grid, heads: int):
        super().__init__()
        self.grid = grid
        self.table = nn.Parameter(torch.zeros(heads, 2 * grid[0] - 1, 2 * grid[1] - 1))

    def forward(self, grid: Grid) -> Tensor:
        if grid[0] > self.grid[0] or grid[1] > self.grid[1]:
            raise ValueError(
                f"got a grid of {grid}; the relative positions are those of {self.grid}"
            )
        rows, columns = _differences(grid, self.table.device)
        return self.table[:, rows + self.grid[0] - 1, columns + self.grid[1] - 1]


def _differences(grid: Grid, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns from each place to each, `[L, L]`."""
    cells = torch.arange(math.prod(grid), device=device)
    rows, columns = cells // grid[1], cells % grid[1]
    return rows - rows[:, None], columns - columns[:, None]
