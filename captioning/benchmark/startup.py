"""Start-up in seconds: what a user waits for before anything happens."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

import torch
from omegaconf import DictConfig

from captioning.benchmark.measurement import Measurement
from captioning.benchmark.timing import Run, timed

LIBRARIES = "import torch, lightning"
COMMANDS = {
    LIBRARIES: ["-c", LIBRARIES],
    "import captioning": ["-c", "import captioning"],
    "import captioning.run": ["-c", "import captioning.run"],
    "captioning.run --help": ["-m", "captioning.run", "--help"],
}
"""What Python is started with, the libraries first, which the others are compared with."""


def measure(config: DictConfig) -> Iterator[Measurement]:
    """Fresh processes in turn; files lie in the page cache."""
    seconds = timed({name: partial(_python, a) for name, a in COMMANDS.items()}, config.repeats, torch.device("cpu"))
    libraries = Run(1, seconds[LIBRARIES]).median
    for name, run in ((name, Run(1, each)) for name, each in seconds.items()):
        note = "" if name == LIBRARIES else f"{run.median - libraries:+.2f} s beside `{LIBRARIES}`"
        yield Measurement("startup", f"`{name}`", ours=run, note=note)


def _python(arguments: list[str]) -> None:
    # in an empty folder, where the package must be found as it was by this process
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *arguments]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
