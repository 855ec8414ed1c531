"""Processes, signals, terminals, devices and memory of this machine."""

import atexit
import ctypes
import functools
import gc
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from captioning.errors import CaptioningError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what `kill`, schedulers and containers send; a terminal and most schedulers send it
to every process.
"""

# set by launchers (Lightning, Slurm); all that are set are 0 on rank 0 alone
_RANKS = ("LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
_GRACE = 20  # seconds for an orderly end after that of the launching process
# Numbers of glibc's malloc.h, which takes no larger threshold.
TRIM_THRESHOLD, MMAP_THRESHOLD, LARGEST_THRESHOLD = -1, -3, 32 * 2**20
MPS = "nvidia-cuda-mps-control"
OBEYED = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters of a terminal but tabs and line feeds."""
BARS = re.compile(r"\r[^\0-\x1f\x7f-\x9f]*|(\r?\x1b\[Am?(\x1b\[2K\r)?)+")
"""What tqdm writes for a bar, and tqdm and W&B to go up some lines."""
SPIN_COUNT = 1000
"""Turns that a thread waits for others before it sleeps; libgomp's own are 300,000."""


def is_rank_zero() -> bool:
    """Tell whether this is rank 0, also before processes have found each other."""
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() == 0
    # torchrun sets RANK, and orders the processes of a Slurm job in its own way
    names = ("RANK",) if "RANK" in os.environ else _RANKS
    return all(os.environ.get(name, "0") == "0" for name in names)


def all_gather_object(value: T) -> list[T]:
    """The values of all processes in the order of their ranks. Collective."""
    import torch.distributed as dist  # here, because commands start without it

    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    values = [value] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def gather_by_position(values: dict[int, T]) -> dict[int, T]:
    """The values of all processes by position, some of which several have, in ascending order."""
    return dict(sorted(ChainMap(*all_gather_object(values)).items()))


def guard_terminal() -> None:
    """Escape what is no text in all that this process prints and logs, as JSON escapes it.

    Whatever a file contains, it moves no cursor, sets no title and draws in no colour; names of
    files need not be text.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # of one that is read, too, and is no file
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
            # in place, because handlers of logs keep the stream
            stream.write = functools.partial(_write_escaped, stream)  # type: ignore[method-assign]


def _write_escaped(stream: io.TextIOWrapper, text: str) -> int:
    if not BARS.fullmatch(text):
        text = re.sub(r"\x1b\[[\d;]*m", "", text)  # W&B's colours
        text = OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return type(stream).write(stream, text)


@contextmanager
def on_signal(act: Callable[[int], object]) -> Iterator[None]:
    """Call `act` on the first of `SIGNALS`; the next signal ends the process at once."""

    def first(number: int, frame: FrameType | None) -> None:
        for one in SIGNALS:  # the system needs not wait for a computation to return to Python
            signal.signal(one, signal.SIG_DFL)
        act(number)

    before = {number: signal.signal(number, first) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is first:  # after a signal it stays with the next one's end
                signal.signal(number, handler)


def end_with_launcher() -> None:
    """End this process soon after rank 0, if Lightning's rank 0 has started it."""
    # On GPUs it would wait for rank 0 until the process group's timeout, half an hour. torchrun
    # ends its own
    # Lightning starts them with this argument.
    if any(argument.startswith("hydra.job.name=train_ddp_process_") for argument in sys.argv):
        exit_with_parent(os.getppid())


@functools.cache  # once for each
def exit_with_parent(launcher: int) -> None:
    """End this process soon after its parent `launcher`, by SIGTERM if possible."""

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(1)  # even if the main thread is blocked

    threading.Thread(target=watch, daemon=True).start()


def get_device(name: "str | torch.device") -> "torch.device":
    """The device of that name; `auto` is a GPU where there is one."""
    import torch  # here, because commands start without it

    try:
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # PyTorch or this machine has no such device
        reason = str(error).splitlines()[0]
        raise CaptioningError(
            f"device={name} cannot be used: {reason}; allowed: auto, cpu, or a GPU's cuda"
        ) from error
    return device


def device_of(accelerator: str) -> "torch.device":
    """The kind of device that Lightning's trainer takes here."""
    import torch  # here, because commands start without it

    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if accelerator == "cpu" or current is None else current


def cpuinfo() -> str:
    """Linux's description of the CPUs; elsewhere it is empty."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def has_bfloat16(device: "torch.device") -> bool:
    """Tell whether the device computes faster in bfloat16, within the limits of
    `ONEDNN_MAX_CPU_ISA`.
    """
    import torch  # here, because commands start without it

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        known = torch.backends.mkldnn.is_available()
        if not known or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        # On Intel's cores AVX-512 in bfloat16 has half of single precision's FLOP/s, and tiles, if
        # it has any, more
        fast = torch.cpu._is_avx512_bf16_supported() and "GenuineIntel" not in cpuinfo()
        return fast or torch.cpu._is_amx_tile_supported() or not torch.cpu._is_avx512_supported()
    return True


@contextmanager
def paused_collection() -> Iterator[None]:
    """Import and load without garbage collection."""
    # a million objects that stay: examining them again and again takes a sixth of the time of
    # importing PyTorch
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def without_collection() -> Iterator[None]:
    """The same in a program of its own; what is there in the end is never examined."""
    with paused_collection():
        try:
            yield
        finally:
            gc.freeze()
            if "triton" in sys.modules:  # whose objects, unless examined, are reported as leaks
                atexit.register(gc.unfreeze)


def share_cores() -> None:
    """Make OpenMP's waiting threads leave their cores to other programs soon, unless
    `GOMP_SPINCOUNT` or `OMP_WAIT_POLICY` is set. To be called before PyTorch is imported.
    """
    # libgomp alone reads this. Its threads spin while the one that they wait for has no core
    # (experiments/throughput)
    if sys.platform == "linux" and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))


def cpu_count() -> int:
    """The cores that this process may use, by its affinity and by its container's quota."""
    import joblib  # here, because it imports NumPy

    return joblib.cpu_count()


def limit_threads() -> None:
    """Let PyTorch start a thread per core of a quota, of which it does not know, unless
    `OMP_NUM_THREADS` is set. To be called before PyTorch is imported.
    """
    if hasattr(os, "sched_getaffinity") and cpu_count() < len(os.sched_getaffinity(0)):
        os.environ.setdefault("OMP_NUM_THREADS", str(cpu_count()))


def keep_memory() -> None:
    """Keep freed blocks of up to 32 MiB in this process, unless `MALLOC_..._` variables are set."""
    # Otherwise glibc returns every large array to the system, and each step faults in the
    # same gigabytes again: about a tenth of a step on a CPU
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(MMAP_THRESHOLD, LARGEST_THRESHOLD)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)


def share_gpu() -> None:
    """Let processes that start after this compute on a GPU at the same time, by NVIDIA's MPS.

    Where MPS is not installed or does not start, they take turns. Its daemon ends with this
    process; one that is running already stays.
    """
    if "CUDA_MPS_PIPE_DIRECTORY" in os.environ or shutil.which(MPS) is None:
        return
    folder = tempfile.mkdtemp(prefix="mps-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    place = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    if subprocess.run([MPS, "-d"], env=os.environ | place).returncode == 0:
        os.environ |= place
        atexit.register(subprocess.run, [MPS], input=b"quit\n")
