"""Dropout whose mask costs little on a CPU.

PyTorch draws a CPU mask one Bernoulli number at a time, a tenth of the spatial transformer's training step. Here one
64-bit draw serves four elements, so the probability is rounded to a multiple of 2^-16; the rescaling uses the rounded
value, so the expectation stays exact. On other devices it is PyTorch's own dropout.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zeroes each element of `x` with probability `p` and divides the rest by 1 - p (Srivastava et al. 2014)."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    dropped = round(p * _LEVELS)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = (draws[: x.numel()] >= dropped - _LEVELS // 2).view(x.shape)
    return x * kept.to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped))
