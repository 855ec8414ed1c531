"""Sinusoidal positional encodings (Vaswani et al. 2017, section 3.5)."""

import torch
from torch import Tensor


def sinusoidal(length: int, features: int) -> Tensor:
    """`[length, features]`: sin at even and cos at odd features, wavelengths from 2 pi to 20,000 pi."""
    rate = 10000.0 ** (-torch.arange(0, features, 2, dtype=torch.float64) / features)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :features].float()


def sinusoidal_2d(grid: tuple[int, int], features: int) -> Tensor:
    """`[h * w, features]` in row order: the first half of the features encodes the row, the second the column."""
    h, w = grid
    rows, columns = sinusoidal(h, features // 2), sinusoidal(w, features - features // 2)
    return torch.cat((rows[:, None].expand(h, w, -1), columns[None].expand(h, w, -1)), dim=-1).flatten(0, 1)
