"""Learning-rate schedules by optimiser step."""

import math
from typing import Annotated, Literal

from annotated_types import Ge
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from captioning.config.types import NotNegative, validated


@validated
def warmup_decay(
    optimizer: Optimizer,
    total_steps: int,
    warmup_steps: Annotated[int, Ge(0)] = 0,
    decay: Literal["constant", "linear", "cosine"] = "constant",
    final: NotNegative = 0.0,
) -> LambdaLR:
    """Linear warm-up from 1 / warmup_steps of the peak, then decay to `final` of it at `total_steps`."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        if decay == "linear":
            return 1 - (1 - final) * progress
        if decay == "cosine":
            return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2
        return 1.0

    return LambdaLR(optimizer, factor)
