"""Repeated runs, timed in turn, so that what else the machine does falls on all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Run:
    """Repeated runs of one action.

    Attributes:
        amount: what one run handles, in a unit such as images.
        seconds: of each run.
    """

    amount: float
    seconds: list[float]

    @property
    def median(self) -> float:
        """Seconds of the middle run."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def rate(self) -> float:
        """Amount per second of the middle run."""
        return self.amount / self.median


def timed(actions: Mapping[str, Action], repeats: int, device: torch.device) -> dict[str, list[float]]:
    """Runs all actions in turn, one round to warm up and `repeats` more; gives the seconds of each by its name."""

    def seconds(action: Action) -> float:
        begin = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    rounds = [[seconds(action) for action in actions.values()] for _ in range(repeats + 1)][1:]
    return dict(zip(actions, map(list, zip(*rounds, strict=True)), strict=True))
