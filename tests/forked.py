"""Commands in processes of their own, forked off one that has imported all of it, or small runs would mostly import."""

import importlib
import os
import sys
import tempfile
from pathlib import Path
from subprocess import CompletedProcess

from processes import PROCESSES

LIMIT = 600


def forked(command: str, home: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    """What `python -m captioning.COMMAND` does in the folder `home`."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"{folder}/stdout", f"{folder}/stderr"]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment}
        process = PROCESSES.Process(target=_start, args=(command, home, arguments, variables, outputs))
        process.start()
        process.join(LIMIT)
        process.kill()  # if it has not ended
        process.join()
        return CompletedProcess([], process.exitcode or 0, *(Path(output).read_text() for output in outputs))


def run(home: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    """A run that must end well."""
    ended = forked("run", home, *arguments, **environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def _start(command: str, home: Path, arguments: tuple[str, ...], variables: dict[str, str], outputs: list[str]) -> None:
    import interrupted
    import torch

    for descriptor, output in enumerate(outputs, start=1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), descriptor)
    os.environ.clear()
    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    sys.path[:0] = [str(home), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    interrupted.execute(importlib.import_module(f"captioning.{command}").main, home, arguments, variables)
