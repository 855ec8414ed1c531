"""Mirrored images: left and right exchanged, as a second view of a small data set.

B images, L context vectors of D features on a grid of (h, w), H rows and W columns of pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_STREAM = 1
"""Tells these draws from others that are keyed by seed, epoch and position."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Mirrors images at random, anew in each epoch and whatever batch they are in.

    Features are mirrored on their grid, which is nearly what a backbone makes of the mirrored photograph, as far as it
    was trained with such ones. A model that reads them as a set without places, as Show, Attend and Tell does, cannot
    see the difference; pixels are another view for every model.

    Attributes:
        probability: of an image to be mirrored.
        grid: (h, w).
        seed: of the draws.
    """

    probability: float
    grid: tuple[int, int]
    seed: int

    def __call__(self, inputs: Tensor, positions: Sequence[int], epoch: int) -> Tensor:
        """The images at `positions` of the split as `epoch` shows them: `[B, L, D]`, or pixels `[B, 3, H, W]`."""
        if not self.probability:
            return inputs
        draws = [np.random.default_rng((self.seed, epoch, position, _STREAM)).random() for position in positions]
        chosen = torch.tensor(draws) < self.probability
        return torch.where(chosen.view(-1, *(1 for _ in inputs.shape[1:])), self._mirrored(inputs), inputs)

    def _mirrored(self, inputs: Tensor) -> Tensor:
        return inputs.flip(-1) if inputs.ndim == 4 else inputs.unflatten(1, self.grid).flip(2).flatten(1, 2)
