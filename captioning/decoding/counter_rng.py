"""Counter-based (stateless) uniform random numbers.

A generator's next number depends on all draws before it; here each number is a hash of its key, as in Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3", 2011: neither the order of images nor the batch changes it.
"""

import torch
from torch import Tensor


def uniform(keys: Tensor, *sizes: int) -> Tensor:
    """Numbers `[*keys, *sizes]` in [0, 1), multiples of 2^-24 as in single precision; `keys` is int64 of any shape.

    The number at `(b, i, j, ...)` is a function of `(keys[b], i, j, ...)` alone, in integer arithmetic, so that every
    device gives the same.
    """
    for size in sizes:
        keys = derived(keys[..., None], torch.arange(size, device=keys.device))
    return _shifted(keys, 64 - 24).to(torch.float32) / 2**24


def derived(keys: Tensor, n: Tensor) -> Tensor:
    """New keys: output n = 0, 1, ... of the generator SplitMix64 (Steele, Lea, Flood 2014) that starts at each key.

    Its outputs start further generators, one level for each part of a number's key.
    """
    # Modulo 2^64, as int64 has it; constants from 2^63 on are written as negative numbers.
    z = keys + (n + 1) * (0x9E3779B97F4A7C15 - 2**64)
    z = (z ^ _shifted(z, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ _shifted(z, 27)) * (0x94D049BB133111EB - 2**64)
    return z ^ _shifted(z, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    # of an unsigned number: torch's shift repeats the sign
    return (x >> bits) & (2 ** (64 - bits) - 1)
