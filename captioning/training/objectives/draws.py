"""Uniform random numbers that belong to examples: no order of batches, data worker or process changes them.

B images. A generator's next number would depend on all that was drawn before it; here each number is a hash of what it
is for, as in the counter-based generators of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_BITS = 24
"""Of a number: as many as single precision holds."""


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

        The number at `(b, i, j, ...)` is a function of `(seed, step, index[b], i, j, ...)` alone. Integers only, so
        that every device gives the same, and nothing waits for it.
        """
        seed, step = (torch.full_like(self.index, part) for part in (self.seed, self.step))
        state = _output(_output(seed, step), self.index)
        for size in sizes:
            state = _output(state[..., None], torch.arange(size, device=state.device))
        return _shifted(state, 64 - _BITS).to(torch.float32) / 2**_BITS


def _output(state: Tensor, n: Tensor) -> Tensor:
    """Output n = 0, 1, ... of the generator SplitMix64 (Steele, Lea, Flood 2014) that starts at `state`.

    Its outputs are the starts of other generators in turn, one level for each part of a number's key. Arithmetic is
    modulo 2^64, as int64 has it; constants from 2^63 on are written as negative numbers.
    """
    z = state + (n + 1) * (0x9E3779B97F4A7C15 - 2**64)
    z = (z ^ _shifted(z, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ _shifted(z, 27)) * (0x94D049BB133111EB - 2**64)
    return z ^ _shifted(z, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """`x` as an unsigned number, shifted to the right (torch's shift repeats the sign)."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
