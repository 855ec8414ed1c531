"""A process for every measurement, so that its peak memory is its own."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, set_start_method
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from captioning.errors import CaptioningError
from captioning.machine import keep_memory

STATUS = Path("/proc/self/status")
P = ParamSpec("P")
T = TypeVar("T")


def isolated(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function of a module, called in a fresh process that works as a command does.

    Raises:
        CaptioningError: the process was killed; and whatever the function raises.
    """
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=_as_commands_start) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool as error:
            raise CaptioningError(
                "the process of a measurement was killed, most likely for want of memory: measure with smaller "
                "sizes (batch.images, search.batches), or leave the part out (parts=[...])"
            ) from error


def _as_commands_start() -> None:
    keep_memory()
    # This process was spawned, and would start those of its data loaders so too, seconds slower than commands do.
    set_start_method(None, force=True)


def peak_bytes(device: torch.device) -> int | None:
    """The most memory that this process has held so far: on a GPU the tensors', on a CPU all that was resident.

    None on a CPU without Linux's account of it. (`getrusage` has one everywhere, but counts what the process was before
    it became this program.)
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not STATUS.exists():
        return None
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])
