"""Uniform random numbers that are a function of what they are for, and of nothing that was drawn before.

A generator's next number depends on the order of everything; here each number is a hash of its key, as in the
counter-based generators of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

import torch
from torch import Tensor

_BITS = 24
"""Of a number: as many as single precision holds."""


def uniform(keys: Tensor, *sizes: int) -> Tensor:
    """`[*keys, *sizes]` in [0, 1), multiples of 2^-24.

    The number at `(b, i, j, ...)` is a function of `(keys[b], i, j, ...)` alone. Integers only, so that every device
    gives the same, and nothing waits for it.

    Args:
        keys: int64 of any shape.
        sizes: of the further axes.
    """
    for size in sizes:
        keys = derived(keys[..., None], torch.arange(size, device=keys.device))
    return _shifted(keys, 64 - _BITS).to(torch.float32) / 2**_BITS


def derived(keys: Tensor, n: Tensor) -> Tensor:
    """New keys: output n = 0, 1, ... of the generator SplitMix64 (Steele, Lea, Flood 2014) that starts at each key.

    Its outputs are the starts of other generators in turn, one level for each part of a number's key. Arithmetic is
    modulo 2^64, as int64 has it; constants from 2^63 on are written as negative numbers.
    """
    z = keys + (n + 1) * (0x9E3779B97F4A7C15 - 2**64)
    z = (z ^ _shifted(z, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ _shifted(z, 27)) * (0x94D049BB133111EB - 2**64)
    return z ^ _shifted(z, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """`x` as an unsigned number, shifted to the right (torch's shift repeats the sign)."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
