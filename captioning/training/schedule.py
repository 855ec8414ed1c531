"""Schedules of the learning rate: warm-up and decay."""

import math
from typing import Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from captioning.config.types import NotNegative, NotNegativeInt, validated


@validated
def warmup_decay(
    optimizer: Optimizer,
    total_steps: int,
    warmup_steps: NotNegativeInt = 0,
    decay: Literal["constant", "linear", "cosine", "inverse_sqrt"] = "constant",
    final: NotNegative = 0.0,
) -> LambdaLR:
    """Linear warm-up from 1 / warmup_steps of the peak, then decay.

    It decays to `final` of the peak at `total_steps`.

    `inverse_sqrt` is sqrt(warmup_steps / step), whatever the total (Vaswani et al. 2017, Eq. 3).
    """

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        if decay == "inverse_sqrt":
            return math.sqrt(max(1, warmup_steps) / (step + 1))
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        if decay == "linear":
            return 1 - (1 - final) * progress
        if decay == "cosine":
            return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2
        return 1.0

    return LambdaLR(optimizer, factor)
