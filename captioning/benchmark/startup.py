"""Start-up in seconds: what a user waits for before anything happens."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from omegaconf import DictConfig

from captioning.benchmark.built import built_checkpoint
from captioning.benchmark.measurement import Measurement
from captioning.benchmark.timing import Run, timed

LIBRARIES = "import torch"
LOADED = "captioning.load(CHECKPOINT)"
COMMANDS = {
    LIBRARIES: ["-c", LIBRARIES],
    "captioning --help": ["-m", "captioning", "--help"],
    "captioning run --help": ["-m", "captioning.run", "--help"],
    "captioning run data.root=nowhere": ["-m", "captioning.run", "data=flickr8k", "data.root=nowhere"],
    "captioning evaluate captions=nowhere": ["-m", "captioning.evaluate", "captions=nowhere", "references=nowhere"],
    "captioning report --help": ["-m", "captioning.report", "--help"],
    LOADED: ["-c", "import sys, captioning; captioning.load(sys.argv[1], 'cpu')"],
}
"""What Python is started with, the library first, which the others are compared with."""


def measure(config: DictConfig) -> Iterator[Measurement]:
    """Fresh processes in turn; files lie in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "c.ckpt"
        torch.save(built_checkpoint(config), checkpoint)
        actions = {name: partial(_python, arguments) for name, arguments in COMMANDS.items()}
        actions[LOADED] = partial(_python, [*COMMANDS[LOADED], str(checkpoint)])
        seconds = timed(actions, config.repeats, torch.device("cpu"))
    libraries = Run(1, seconds[LIBRARIES]).median
    for name, run in ((name, Run(1, each)) for name, each in seconds.items()):
        note = "" if name == LIBRARIES else f"{run.median - libraries:+.2f} s beside `{LIBRARIES}`"
        yield Measurement("startup", f"`{name}`", ours=run, note=note)


def _python(arguments: list[str]) -> None:
    # in an empty folder, where the package must be found as it was by this process
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *arguments]
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    refused = ended.returncode == 1 and ended.stderr.splitlines()[-1].startswith("error: ")
    assert ended.returncode == 0 or refused, ended.stderr
