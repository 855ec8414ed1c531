"""Ours, the naive variant and the machine's peak, in turn."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from captioning.benchmark.ceilings import matrix_multiply
from captioning.benchmark.measurement import Ceiling
from captioning.benchmark.processes import peak_bytes
from captioning.benchmark.timing import Action, Run, timed

WARM_UP = 2
"""Runs after which a process holds all that it will: the optimiser's state comes with the first."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one process measured; see `Measurement`."""

    ours: list[float]
    naive: list[float]
    ceiling: Ceiling
    peak: int | None


def compare(ours: Action, naive: Action, dtype: torch.dtype, repeats: int, device: torch.device) -> Comparison:
    """Times the two against matrix multiplication in `dtype`, after ours has shown how much memory it takes.

    The work is that of all matrix products and convolutions of ours, counted; other operations count as none.
    """
    peak = peak_after(ours, device)
    with FlopCounterMode(display=False) as counter:
        ours()
    multiply, work = matrix_multiply(dtype, device)
    seconds = timed({"ours": ours, "naive": naive, "multiply": multiply}, repeats, device)
    rate = Run(work, seconds["multiply"]).rate
    ceiling = Ceiling("matrix multiply", "FLOP", rate, counter.get_total_flops())
    return Comparison(seconds["ours"], seconds["naive"], ceiling, peak)


def peak_after(action: Callable[[], object], device: torch.device, times: int = WARM_UP) -> int | None:
    """The peak memory of this process, bytes, after it has done something some times."""
    for _ in range(times):
        action()
    return peak_bytes(device)
