"""This machine: the processes of one run on it and the signals to them, what its devices can do, and its memory."""

import ctypes
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from captioning.errors import CaptioningError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what `kill`, schedulers and containers send; a terminal and most schedulers send it to every process."""

_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
"""Where launchers (torchrun, Lightning, Slurm) tell a process its place; all that are set are 0 on rank 0 alone."""

_GRACE = 20
"""Seconds for an orderly end after that of the launching process."""

# From glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_THRESHOLD = 32 * 2**20
"""glibc takes none above this; arrays beyond it are still returned when freed."""


def is_first() -> bool:
    """Whether this is rank 0, before there is a trainer to ask."""
    return all(os.environ.get(name, "0") == "0" for name in _RANKS)


def gathered(value: T) -> list[T]:
    """The values of all processes, in the order of their ranks. Collective; of a single process its own."""
    import torch.distributed as dist  # here, because commands start without it

    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    values = [value] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


@contextmanager
def on_signal(act: Callable[[int], object]) -> Iterator[None]:
    """Calls `act` with the first of `SIGNALS` that comes meanwhile; the next one ends the process at once.

    At once means by the system, which needs not wait for a computation or a collective operation to return to Python.
    """

    def first(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        act(number)

    before = {number: signal.signal(number, first) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is first:  # after a signal it stays with the next one's end
                signal.signal(number, handler)


def end_with_launcher() -> None:
    """Ends this process soon after rank 0, if that is the one that has started it.

    Lightning's rank 0 kills the processes that it has started when one of them dies, but who ends them when it dies
    itself? On GPUs they would wait for it until the process group's timeout, half an hour. torchrun sees to its own.
    """
    if any(argument.startswith("hydra.job.name=train_ddp_process_") for argument in sys.argv):  # Lightning's mark
        end_with(os.getppid())


@functools.cache  # once for each
def end_with(launcher: int) -> None:
    """Ends this process soon after its parent `launcher`, as by SIGTERM if it can be."""

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(1)  # whatever the main thread waits for

    threading.Thread(target=watch, daemon=True).start()


def device_called(name: "str | torch.device") -> "torch.device":
    """The device of that name; `auto` is a GPU where there is one.

    Raises:
        CaptioningError: there is no such device.
    """
    import torch  # here, because commands start without it

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # no such device in PyTorch; none in this machine
        reason = str(error).splitlines()[0]
        raise CaptioningError(f"device={name} cannot be used: {reason}; allowed: auto, cpu, or a GPU's cuda") from error
    return device


def has_bfloat16(device: "torch.device") -> bool:
    """Tell whether the device multiplies bfloat16 in hardware; a CPU without takes up to hundreds of times longer.

    A CPU's answer keeps to the limits that the environment sets (`ONEDNN_MAX_CPU_ISA`).
    """
    import torch  # here, because commands start without it

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        emulated = torch.cpu._is_avx512_supported() and not torch.cpu._is_avx512_bf16_supported()
        return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported() and not emulated
    return True


def keep_memory() -> None:
    """Makes this process keep what it frees, up to 32 MiB a piece. Does nothing without glibc.

    By default glibc returns every large array to the system when it is freed, so that each step of training faults in,
    and the system clears, the same gigabytes again: about a tenth of a step on a CPU.

    What the user has set (glibc's `MALLOC_..._` variables) stays.
    """
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST_THRESHOLD)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
