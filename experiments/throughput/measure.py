"""Seconds, peak memory and the share of a machine's peak, as rows of a table."""

import os
import platform
import re
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from timeit import timeit
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from captioning.machine import cpu_count, cpuinfo, keep_memory

DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16}
MATRIX, GPU_MATRIX = 2048, 8192  # rows of the square matrices whose product is a machine's peak
WARM_UP = 2  # runs until a process holds all of its memory: the optimiser's state comes with one
STATUS = Path("/proc/self/status")

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of repeated runs of one action, which handles `amount` images or captions."""

    amount: float
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """(Slowest - fastest) / median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def rate(self) -> float:
        return self.amount / self.median


@dataclass(frozen=True, slots=True)
class Measurement:
    """The same work by this package and naively."""

    name: str
    unit: str  # of amounts: images or captions
    ours: Timing
    naive: Timing | None
    flop: int  # of the matrix products of one run of ours
    peak: float  # FLOP a second of a large matrix product, timed in turn with the runs
    memory: int | None  # bytes at most, of a GPU's tensors or of the process

    @property
    def share(self) -> float:
        """Of the peak."""
        return self.flop / self.ours.median / self.peak

    @property
    def ratio(self) -> float | None:
        return self.ours.rate / self.naive.rate if self.naive else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"share": self.share, "ratio": self.ratio}

    def cells(self) -> dict[str, str]:
        """What a table shows, by column."""
        naive = f"{self.naive.rate:,.3g} {self.unit}/s ({self.ratio:.2f}x)" if self.naive else ""
        return {
            "what": self.name,
            "one run": f"{1000 * self.ours.median:,.3g} ms",
            "rate": f"{self.ours.rate:,.3g} {self.unit}/s",
            "spread": f"{self.ours.spread:.0%}",
            "naive (ratio)": naive,
            "of the peak": f"{self.share:.0%} of {self.peak / 1e9:,.3g} GFLOP/s",
            "memory": f"{self.memory / 1e9:.2f} GB" if self.memory else "",
        }


@dataclass(frozen=True, slots=True)
class Variants:
    """Work ready to run in this process, by this package and naively."""

    ours: Action
    naive: Action | None
    amounts: tuple[int, int]  # that one run of each handles
    device: torch.device
    dtype: torch.dtype = torch.float32  # of the matrix product that is the peak
    flop: int | None = None  # of one run of ours; None: counted, which compiled code does not allow


def measure(name: str, unit: str, build: Callable[[], Variants], repeats: int) -> Measurement:
    """Take the memory of ours, then time ours, naive and the peak in turn."""
    variants = build()
    device = variants.device
    memory = peak_memory(variants.ours, device)
    size = GPU_MATRIX if device.type == "cuda" else MATRIX
    matrix = torch.randn(size, size, device=device).to(variants.dtype)
    actions: dict[str, Action] = {"ours": variants.ours, "peak": lambda: matrix @ matrix}
    if variants.naive is not None:
        actions["naive"] = variants.naive
    flop = count_flop(variants.ours) if variants.flop is None else variants.flop
    seconds = time_in_turn(actions, repeats, device)
    amount, naive_amount = variants.amounts
    return Measurement(
        name,
        unit,
        ours=Timing(amount, seconds["ours"]),
        naive=Timing(naive_amount, seconds["naive"]) if "naive" in seconds else None,
        flop=flop,
        peak=Timing(2 * size**3, seconds["peak"]).rate,
        memory=memory,
    )


def measure_alone(name: str, unit: str, build: Callable[[], Variants], repeats: int) -> Measurement:
    """As `measure`, in a process of its own, whose peak memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=keep_memory) as pool:
        return pool.submit(measure, name, unit, build, repeats).result()


def count_flop(action: Action) -> int:
    """Floating-point operations of the matrix products of one run."""
    with FlopCounterMode(display=False) as counter:
        action()
    return counter.get_total_flops()


def time_in_turn(
    actions: Mapping[str, Action], repeats: int, device: torch.device
) -> dict[str, list[float]]:
    """Seconds of each action, after one round to warm up: a busy moment slows all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for repeat in range(1 + repeats):
        for name, action in actions.items():
            taken = _time_on_gpu(action) if device.type == "cuda" else timeit(action, number=1)
            if repeat:
                seconds[name].append(taken)
    return seconds


def _time_on_gpu(action: Action) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    action()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def peak_memory(action: Action, device: torch.device) -> int | None:
    """Bytes after some runs: of a GPU's tensors, or of the process where the kernel counts them."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(WARM_UP):
        action()
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # `getrusage` counts what the process was before it became this program
    line = re.search(r"VmHWM:\s*(\d+)", STATUS.read_text()) if STATUS.exists() else None
    return 1024 * int(line[1]) if line else None


def describe_machine(device: torch.device) -> dict[str, Any]:
    names = re.findall(r"model name\s*: (.+)", cpuinfo())
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": names[0] if names else platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
