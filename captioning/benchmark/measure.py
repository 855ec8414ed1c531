"""Timing, memory and hardware peaks; measurements as lines and as a table."""

import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context, set_start_method
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from captioning.errors import CaptioningError
from captioning.machine import has_bfloat16, keep_memory

DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16}
MATRIX = 2048
COPY_BYTES, CHUNK = 256 * 2**20, 8 * 2**20
WARM_UP = 2  # runs until a process holds all of its memory: the optimiser's state comes with the first
STATUS = Path("/proc/self/status")

Action = Callable[[], object]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of repeated runs of one action, and the images or captions that one of them handles."""

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


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Peak of the machine, timed in turn with the runs: FLOP or B a second, and how many one run of ours takes."""

    name: str
    unit: str
    per_second: float
    work: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the table.

    Attributes:
        part: of the benchmark.
        name: of what was measured, within its part.
        unit: of amounts: images or captions.
        ours: runs of this package; None where only memory was measured, or nothing.
        naive: the same work done naively.
        ceiling: peak of the machine.
        peak: bytes of a process that has run only ours.
        naive_peak: bytes of a process that has run only the naive variant.
        note: everything else.
        raw: further numbers that the note is made of, by name.
    """

    part: str
    name: str
    unit: str = ""
    ours: Run | None = None
    naive: Run | None = None
    ceiling: Ceiling | None = None
    peak: int | None = None
    naive_peak: int | None = None
    note: str = ""
    raw: dict[str, float | list[float] | None] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Our rate in multiples of the naive one."""
        return self.ours.rate / self.naive.rate if self.ours and self.naive else None

    @property
    def share(self) -> float | None:
        """Share of the ceiling, 0-1."""
        return self.ceiling.work / self.ours.median / self.ceiling.per_second if self.ours and self.ceiling else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with every second."""
        content = asdict(self) | {"ratio": self.ratio, "share": self.share}
        for name, run in (("ours", self.ours), ("naive", self.naive)):
            if run:
                content[name] |= {"median": run.median, "spread": run.spread, "rate": run.rate}
        return content


def timed(actions: Mapping[str, Action], repeats: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds of actions run in turn, one round to warm up and `repeats` more."""

    def seconds(action: Action) -> float:
        begin = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    rounds = [[seconds(action) for action in actions.values()] for _ in range(repeats + 1)][1:]
    return dict(zip(actions, map(list, zip(*rounds, strict=True)), strict=True))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of both variants in one process; see `Measurement`."""

    ours: list[float]
    naive: list[float]
    ceiling: Ceiling
    peak: int | None


def compare(ours: Action, naive: Action, dtype: torch.dtype, repeats: int, device: torch.device) -> Comparison:
    """Time both against matrix multiplication in `dtype`; count the arithmetic of our products and convolutions."""
    peak = peak_after(ours, device)
    with FlopCounterMode(display=False) as counter:
        ours()
    multiply, work = matrix_multiply(dtype, device)
    seconds = timed({"ours": ours, "naive": naive, "multiply": multiply}, repeats, device)
    rate = Run(work, seconds["multiply"]).rate
    ceiling = Ceiling("matrix multiply", "FLOP", rate, counter.get_total_flops())
    return Comparison(seconds["ours"], seconds["naive"], ceiling, peak)


def isolated(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Result of a function in a fresh process, whose peak memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=_as_commands_start) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool as error:
            raise CaptioningError(
                "the process of a measurement was killed, most likely because memory ran out: measure with smaller "
                "sizes (batch.images, search.batches), or leave the part out (parts=[...])"
            ) from error


def _as_commands_start() -> None:
    keep_memory()
    # This process was spawned, and would start those of its data loaders so too, seconds slower than commands do.
    set_start_method(None, force=True)


def peak_after(action: Action, device: torch.device, times: int = WARM_UP) -> int | None:
    """Peak memory of this process, bytes, after some runs of an action."""
    for _ in range(times):
        action()
    return peak_bytes(device)


def peak_bytes(device: torch.device) -> int | None:
    """Peak memory of this process: on a GPU of its tensors, on a CPU resident; None where the kernel does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not STATUS.exists():  # `getrusage` counts what the process was before it became this program
        return None
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def machine(device: torch.device) -> dict[str, Any]:
    """Hardware and versions, for the record."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": _cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "bfloat16": has_bfloat16(device),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def matrix_multiply(dtype: torch.dtype, device: torch.device) -> tuple[Action, float]:
    """Product of large matrices, and its floating-point operations."""
    matrix = torch.randn(MATRIX, MATRIX, device=device).to(dtype)
    return lambda: matrix @ matrix, 2 * MATRIX**3


def memory_copy(device: torch.device) -> tuple[Action, float]:
    """Copy of a large tensor into allocated memory, and its bytes."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.zero_()
    return lambda: target.copy_(source), COPY_BYTES


def ceilings(device: torch.device, repeats: int) -> dict[str, float]:
    """Peak FLOP/s and B/s by name: matrices, memory, a file in the page cache and, where it can be evicted, on disk."""
    dtypes = {f"matrix multiply, {p}": d for p, d in DTYPES.items() if d is torch.float32 or has_bfloat16(device)}
    actions = {f"{name}, FLOP/s": matrix_multiply(dtype, device) for name, dtype in dtypes.items()}
    actions["memory copy, B/s"] = memory_copy(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes"
        if shutil.disk_usage(folder).free > 4 * COPY_BYTES:
            _write(path)
            actions["file in the page cache, B/s"] = (lambda: _read(path, evict=False), COPY_BYTES)
            if hasattr(os, "posix_fadvise"):
                actions["file on the disk, B/s"] = (lambda: _read(path, evict=True), COPY_BYTES)
        seconds = timed({name: action for name, (action, _) in actions.items()}, repeats, device)
    return {name: Run(amount, seconds[name]).rate for name, (_, amount) in actions.items()}


def _write(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(COPY_BYTES // CHUNK):
            file.write(os.urandom(CHUNK))
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path, evict: bool) -> None:
    with path.open("rb", buffering=0) as file:
        if evict:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = bytearray(CHUNK)
        while file.readinto(buffer):
            pass
