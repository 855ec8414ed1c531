"""Positional encodings (Vaswani et al. 2017, section 3.5)."""

import torch
from torch import Tensor, nn

from captioning.backbones.context import Grid
from captioning.models.parts.numerics import Part


class Positions(Part):
    """Positional encodings from a table `[S, E]` for at most S positions.

    The table has sinusoids, or is learned and initialised with variance 1/E (D).
    """

    table: Tensor

    def __init__(self, table: Tensor, learned: bool):
        super().__init__()
        self.learned = learned
        if learned:
            self.table = nn.Parameter(torch.empty_like(table))
        else:
            self.register_buffer("table", table, persistent=False)

    def initialise(self) -> None:
        if self.learned:
            nn.init.normal_(self.table, std=self.table.shape[1] ** -0.5)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Encode `[..., T, E]` at the positions `first` to `first` + T - 1."""
        return x + self.table[first : first + x.shape[-2]].to(x.dtype)


def sinusoidal(length: int, features: int) -> Tensor:
    """Sinusoidal positions `[length, features]`: sin in even, cos in odd features, with wavelengths
    from 2 pi to 20,000 pi.
    """
    rate = 10000.0 ** (-torch.arange(0, features, 2, dtype=torch.float64) / features)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :features].float()


def sinusoidal_2d(grid: Grid, features: int) -> Tensor:
    """`[h * w, features]` in row order: half of the features encode the row, half the column."""
    h, w = grid
    rows, columns = sinusoidal(h, features // 2), sinusoidal(w, features - features // 2)
    return torch.hstack((rows.repeat_interleave(w, dim=0), columns.repeat(h, 1)))
