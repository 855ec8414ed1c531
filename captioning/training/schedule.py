"""Schedules of the learning rate: warm-up and decay, and how one is built."""

import inspect
import math
from dataclasses import replace
from typing import Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from captioning.config.registry import CheckedPart
from captioning.config.types import NotNegative, NotNegativeInt, validated


def build_schedule(
    part: CheckedPart, mode: str, optimizer: Optimizer, total_steps: int
) -> LRScheduler:
    """Build a schedule of this package, of PyTorch or of the user.

    One that waits for a plateau is given the `mode` of the monitored score, unless it is set; any
    other is given `total_steps`, if it takes them.
    """
    given: dict[str, object] = {}
    if inspect.isclass(part.target) and issubclass(part.target, ReduceLROnPlateau):
        given["mode"] = mode
    elif "total_steps" in inspect.signature(part.target).parameters:
        given["total_steps"] = total_steps
    whole = replace(part, partial=False, arguments=given | part.arguments)
    return whole.build(optimizer=optimizer)


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
