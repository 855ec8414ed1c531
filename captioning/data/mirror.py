"""Mirrored photographs: left and right exchanged, as a second view of a small data set.

B images, L context vectors of D features, H rows and W columns of pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captioning.borders.bounds import Probability
from captioning.data.inputs import Inputs

_STREAM = 1
"""Tells these draws from others that are keyed by seed, epoch and position."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Shows images mirrored at random, drawn anew in each epoch and whatever batch they are in.

    The photograph is mirrored before the backbone sees it, not its features on their grid, which would be no other
    view for a model that reads them as a set, as Show, Attend and Tell does.

    Attributes:
        probability: of an image to be shown mirrored.
        mirrored: the same photographs, mirrored.
        seed: of the draws.
    """

    probability: Probability
    mirrored: Inputs
    seed: int

    def __call__(self, inputs: Tensor, positions: Sequence[int], epoch: int) -> Tensor:
        """The images at `positions` of the split as `epoch` shows them, in place of some of the rows of `inputs`."""
        draws = [np.random.default_rng((self.seed, epoch, position, _STREAM)).random() for position in positions]
        chosen = [row for row, draw in enumerate(draws) if draw < self.probability]
        if chosen:
            inputs = inputs.index_copy(0, torch.tensor(chosen), self.mirrored.rows([positions[row] for row in chosen]))
        return inputs
