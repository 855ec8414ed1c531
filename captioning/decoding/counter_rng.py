"""Counter-based (stateless) uniform random numbers.

Each number is a hash of its key, as in Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011, so that it
does not depend on earlier draws: neither the order of images nor the batch changes it.
"""

import torch
from torch import Tensor


def uniform(keys: Tensor, *sizes: int) -> Tensor:
    """Numbers `[*keys, *sizes]` in [0, 1), multiples of 2^-24; `keys` is int64 of any shape.

    The number at `(b, i, j, ...)` depends only on `(keys[b], i, j, ...)`, by integer arithmetic, so that all devices
    give the same numbers.
    """
    for size in sizes:
        keys = derived(keys[..., None], torch.arange(size, device=keys.device))
    return _shifted(keys, 64 - 24).to(torch.float32) / 2**24


def derived(keys: Tensor, n: Tensor) -> Tensor:
    """New keys: output n = 0, 1, ... of the generator SplitMix64 (Steele, Lea, Flood 2014) seeded by each key.

    The outputs seed further generators, one level for each part of a key.
    """
    # Arithmetic of int64 is modulo 2^64; constants from 2^63 on are written as negative numbers.
    z = keys + (n + 1) * (0x9E3779B97F4A7C15 - 2**64)
    z = (z ^ _shifted(z, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ _shifted(z, 27)) * (0x94D049BB133111EB - 2**64)
    return z ^ _shifted(z, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    # unsigned shift; torch's shift repeats the sign
    return (x >> bits) & (2 ** (64 - bits) - 1)
