"""Random numbers that belong to examples: no order of batches, data worker or process changes them.

B images.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.keyed_random import derived, uniform


@dataclass(frozen=True, slots=True)
class Draws:
    """The random numbers of one batch.

    Attributes:
        seed: of the run.
        step: of the batch, counted over all epochs; the same on all processes.
        index: `[B]` int64, each image's position in its split.
    """

    seed: int
    step: int
    index: Tensor

    def uniform(self, *sizes: int) -> Tensor:
        """`[B, *sizes]` in [0, 1), multiples of 2^-24.

        The number at `(b, i, j, ...)` is a function of `(seed, step, index[b], i, j, ...)` alone.
        """
        seed, step = (torch.full_like(self.index, part) for part in (self.seed, self.step))
        return uniform(derived(derived(seed, step), self.index), *sizes)
