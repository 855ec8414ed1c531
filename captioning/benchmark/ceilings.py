"""What machine this is, and what it can do at most."""

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from captioning.benchmark.timing import Run, timed
from captioning.machine import has_bfloat16

DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16}
MATRIX = 2048
COPY_BYTES = 256 * 2**20
CHUNK = 8 * 2**20


def machine(device: torch.device) -> dict[str, Any]:
    """What a record of measurements says of the machine."""
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


def matrix_multiply(dtype: torch.dtype, device: torch.device) -> tuple[Callable[[], object], float]:
    """An action that the machine cannot do faster, and its floating-point operations."""
    matrix = torch.randn(MATRIX, MATRIX, device=device).to(dtype)
    return lambda: matrix @ matrix, 2 * MATRIX**3


def memory_copy(device: torch.device) -> tuple[Callable[[], object], float]:
    """An action that copies a large tensor to where there is room for it already, and the bytes copied."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.zero_()
    return lambda: target.copy_(source), COPY_BYTES


def ceilings(device: torch.device, repeats: int) -> dict[str, float]:
    """FLOP/s and bytes/s by name, each of the middle run of `repeats`.

    A file is read twice, from the system's page cache and, where it can be told to forget the file, from the disk
    (which on a virtual machine may be a cache of its host's).
    """
    dtypes = {f"matrix multiply, {p}": d for p, d in DTYPES.items() if d is torch.float32 or has_bfloat16(device)}
    actions = {f"{name}, FLOP/s": matrix_multiply(dtype, device) for name, dtype in dtypes.items()}
    actions["memory copy, B/s"] = memory_copy(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes"
        if shutil.disk_usage(folder).free > 4 * COPY_BYTES:
            _write(path)
            actions["file in the page cache, B/s"] = (lambda: _read(path, forget=False), COPY_BYTES)
            if hasattr(os, "posix_fadvise"):
                actions["file on the disk, B/s"] = (lambda: _read(path, forget=True), COPY_BYTES)
        seconds = timed({name: action for name, (action, _) in actions.items()}, repeats, device)
    return {name: Run(amount, seconds[name]).rate for name, (_, amount) in actions.items()}


def _write(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(COPY_BYTES // CHUNK):
            file.write(os.urandom(CHUNK))
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path, forget: bool) -> None:
    with path.open("rb", buffering=0) as file:
        if forget:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = bytearray(CHUNK)
        while file.readinto(buffer):
            pass
