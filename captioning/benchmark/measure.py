"""Timing, peak memory and the peaks of this machine, as rows of a table."""

import os
import platform
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context, set_start_method
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from captioning.machine import cpuinfo, has_bfloat16, keep_memory
from captioning.report.tables import markdown_table

DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16}
CPU = torch.device("cpu")
MATRIX, GPU_MATRIX = 2048, 8192  # rows of the square matrices whose product is the ceiling
COPY_BYTES, CHUNK = 256 * 2**20, 8 * 2**20
WARM_UP = (
    2  # runs until a process holds all of its memory: the optimiser's state comes with the first
)
STATUS = Path("/proc/self/status")

Action = Callable[[], object]
T = TypeVar("T")
COLUMNS = (
    "part",
    "what",
    "one run",
    "rate",
    "spread",
    "naive",
    "ratio",
    "of the ceiling",
    "peak memory",
    "note",
)
LABELS = (
    "",
    "",
    "spread ",
    "naive ",
    "",
    "",
    "peak ",
    "",
)  # on a line, of the columns after the second


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of repeated runs of one action."""

    amount: float  # images or captions that one run handles
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def rate(self) -> float:
        return self.amount / self.median


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Peak of the machine, timed in turn with the runs: FLOP or B a second, and how many one run of
    ours takes.
    """

    name: str
    unit: str
    per_second: float
    work: float


@dataclass(frozen=True, slots=True)
class Measurement:
    part: str  # of the benchmark
    name: str  # within its part
    unit: str = ""  # of amounts: images or captions
    ours: Run | None = None  # None where only memory was measured, or nothing
    naive: Run | None = None  # the same work done naively
    ceiling: Ceiling | None = None
    peak: int | None = None  # bytes of a process that has run only ours
    naive_peak: int | None = None  # bytes of a process that has run only the naive variant
    note: str = ""
    raw: dict[str, Any] = field(
        default_factory=dict
    )  # numbers, by name, from which the note is made

    @property
    def ratio(self) -> float | None:
        return self.ours.rate / self.naive.rate if self.ours and self.naive else None

    @property
    def share(self) -> float | None:
        return (
            self.ceiling.work / self.ours.median / self.ceiling.per_second
            if self.ours and self.ceiling
            else None
        )

    def as_dict(self) -> dict[str, Any]:
        content = asdict(self) | {"ratio": self.ratio, "share": self.share}
        for name, run in (("ours", self.ours), ("naive", self.naive)):
            if run:
                content[name] |= {"median": run.median, "spread": run.spread, "rate": run.rate}
        return content


@dataclass(frozen=True, slots=True)
class Variants:
    """Work ready to run in this process, by this package and naively.

    Its ceiling is matrix multiplication in the precision `limit`, or memory that copies `limit`
    bytes; None: none.
    """

    ours: Action
    naive: Action | None
    device: torch.device
    limit: torch.dtype | int | None = torch.float32
    work: int | None = (
        None  # FLOP of one run of ours; None: counted, which compiled code does not allow
    )
    raw: dict[str, Any] = field(default_factory=dict)


Build = Callable[[], Variants]


def compare(
    row: Measurement, build: Build, amounts: tuple[int, int], repeats: int, first: int = WARM_UP
) -> Measurement:
    """Complete a row in a process of its own, as `measured` does."""
    return isolated(_compared, row, build, amounts, repeats, first)


def _compared(
    row: Measurement, build: Build, amounts: tuple[int, int], repeats: int, first: int
) -> Measurement:
    return measured(row, build(), amounts, repeats, first)


def measured(
    row: Measurement,
    variants: Variants,
    amounts: tuple[int, int],
    repeats: int,
    first: int = WARM_UP,
) -> Measurement:
    """Complete a row in this process: peak memory after the `first` runs of ours, then all in turn.

    In turn are both variants and the ceiling. Of a naive variant the memory is known on a GPU
    alone, which forgets.
    """
    limit, device, ceiling = variants.limit, variants.device, None
    peak = _peak_after(variants.ours, device, first)
    actions = {"ours": variants.ours}
    if variants.naive is not None:
        actions["naive"] = variants.naive
        if device.type == "cuda":
            row = replace(row, naive_peak=_peak_after(variants.naive, device, first))
    if isinstance(limit, torch.dtype):
        work = flop(variants.ours) if variants.work is None else variants.work
        actions["limit"], size = matrix_multiply(limit, device)
        name, unit = "matrix multiply", "FLOP"
    elif limit is not None:
        actions["limit"], size = memory_copy(device)
        name, unit, work = "memory copy", "B", limit
    seconds = timed(actions, repeats, device)
    if limit is not None:
        ceiling = Ceiling(name, unit, Run(size, seconds["limit"]).rate, work)
    ours = Run(amounts[0], seconds["ours"])
    naive = Run(amounts[1], seconds["naive"]) if "naive" in seconds else None
    return replace(row, ours=ours, naive=naive, ceiling=ceiling, peak=peak, raw=variants.raw)


def flop(action: Action) -> int:
    """Floating-point operations of the matrix products of one run."""
    with FlopCounterMode(display=False) as counter:
        action()
    return counter.get_total_flops()


def peak_of(build: Build, variant: Literal["ours", "naive"], times: int = WARM_UP) -> int | None:
    return isolated(_peak_of, build, variant, times)


def _peak_of(build: Build, variant: Literal["ours", "naive"], times: int) -> int | None:
    variants = build()
    action = variants.ours if variant == "ours" else variants.naive
    assert action is not None
    return _peak_after(action, variants.device, times)


def timed(
    actions: Mapping[str, Action], repeats: int, device: torch.device
) -> dict[str, list[float]]:
    """Seconds of actions run in turn, one round to warm up and `repeats` more."""

    seconds = _seconds_on_gpu if device.type == "cuda" else _seconds
    rounds = [[seconds(action) for action in actions.values()] for _ in range(repeats + 1)][1:]
    return dict(zip(actions, map(list, zip(*rounds, strict=True)), strict=True))


def _seconds(action: Action) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _seconds_on_gpu(action: Action) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    action()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def isolated(function: Callable[..., T], *args: Any) -> T:
    """Result of a function in a fresh process, whose peak memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=_as_commands_start) as pool:
        return pool.submit(function, *args).result()


def _as_commands_start() -> None:
    keep_memory()
    # This process was spawned, and would start those of its data loaders so too, seconds slower
    # than commands do.
    set_start_method(None, force=True)


def _peak_after(action: Action, device: torch.device, times: int) -> int | None:
    # of a GPU's tensors, or of what is resident; None where the kernel counts none
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(times):
        action()
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # `getrusage` counts what the process was before it became this program
    found = re.search(r"VmHWM:\s*(\d+)", STATUS.read_text()) if STATUS.exists() else None
    return 1024 * int(found[1]) if found else None


def machine(device: torch.device) -> dict[str, Any]:
    names = re.findall(r"model name\s*: (.+)", cpuinfo())
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": [*names, platform.processor() or platform.machine()][0],
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


def matrix_multiply(dtype: torch.dtype, device: torch.device) -> tuple[Action, float]:  # and FLOP
    size = GPU_MATRIX if device.type == "cuda" else MATRIX
    matrix = torch.randn(size, size, device=device).to(dtype)
    return lambda: matrix @ matrix, 2 * size**3


def memory_copy(device: torch.device) -> tuple[Action, float]:  # and bytes
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    target = source.clone()
    return lambda: target.copy_(source), COPY_BYTES


def ceilings(device: torch.device, repeats: int) -> dict[str, float]:
    """Peak FLOP/s and B/s by name: matrices, memory, a file in the page cache and, where it can be
    evicted, on disk.
    """
    dtypes = {
        f"matrix multiply, {p}": d
        for p, d in DTYPES.items()
        if d is torch.float32 or has_bfloat16(device)
    }
    actions = {f"{name}, FLOP/s": matrix_multiply(dtype, device) for name, dtype in dtypes.items()}
    actions["memory copy, B/s"] = memory_copy(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes"
        if shutil.disk_usage(folder).free > 4 * COPY_BYTES:
            with path.open("wb") as file:
                file.write(os.urandom(COPY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            actions["file in the page cache, B/s"] = (lambda: _read(path, evict=False), COPY_BYTES)
            if hasattr(os, "posix_fadvise"):
                actions["file on the disk, B/s"] = (lambda: _read(path, evict=True), COPY_BYTES)
        seconds = timed({name: action for name, (action, _) in actions.items()}, repeats, device)
    return {name: Run(amount, seconds[name]).rate for name, (_, amount) in actions.items()}


def _read(path: Path, evict: bool) -> None:
    with path.open("rb", buffering=0) as file:
        if evict:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = bytearray(CHUNK)
        while file.readinto(buffer):
            pass


def line(measurement: Measurement) -> str:
    part, name, *cells = _cells(measurement)
    return f"{part}, {name}: " + "; ".join(
        label + cell for label, cell in zip(LABELS, cells, strict=True) if cell
    )


def table(measurements: Sequence[Measurement]) -> str:
    return markdown_table(COLUMNS, [_cells(measurement) for measurement in measurements])


def _cells(m: Measurement) -> tuple[str, ...]:
    ours, naive = m.ours, m.naive
    return (
        m.part,
        m.name,
        (f"{ours.median:.2f} s" if ours.median >= 1 else f"{1000 * ours.median:.3g} ms")
        if ours
        else "",
        f"{_number(ours.rate)} {m.unit}/s" if ours and m.unit else "",
        f"{ours.spread:.0%}" if ours else "",
        f"{_number(naive.rate)} {m.unit}/s ({naive.spread:.0%})" if naive else "",
        f"{m.ratio:.2f}x" if m.ratio else "",
        f"{m.share:.0%} of {_prefixed(m.ceiling.per_second)}{m.ceiling.unit}/s"
        if m.ceiling and m.share
        else "",
        gigabytes(m.peak) + (f" (naive {gigabytes(m.naive_peak)})" if m.naive_peak else "")
        if m.peak
        else "",
        m.note,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _prefixed(value: float) -> str:
    factor, prefix = next(
        (each for each in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if value >= each[0]), (1, "")
    )
    return f"{_number(value / factor)} {prefix}"


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB"
