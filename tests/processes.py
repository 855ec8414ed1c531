"""Commands in processes of their own, forked off one that has imported the libraries already, which
takes seconds.
"""

import atexit
import importlib
import multiprocessing
import os
import pty
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from subprocess import run as run_program

import captioning

START = "forkserver"
PROCESSES = multiprocessing.get_context(START)
LIBRARIES = ("lightning", "torchmetrics", "torchvision", "hydra", "matplotlib.pyplot")
ROOMS = (
    "run",
    "evaluate",
    "predict",
    "captioner",
    "training.setup",
    "runs.evaluation.data_set",
    "report.panels",
)
PROCESSES.set_forkserver_preload([*LIBRARIES, *(f"captioning.{room}" for room in ROOMS)])
LIMIT = 600
PACKAGE = str(Path(captioning.__file__).parents[1])
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": os.pathsep.join([PACKAGE, str(Path(__file__).parent)]),
}
CTRL_C = b"\x03"
SCRIPT = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
"""
"""The first lines of a Python script in a clone of any path, as `#!` takes none with a blank."""


@contextmanager
def started(command, home, *arguments, **environment):
    """`python -m captioning.COMMAND` in the folder `home`, in a session of its own: the process,
    which ends with the context, and files of what it writes.
    """
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        variables = ENVIRONMENT | environment
        process = PROCESSES.Process(
            target=_start, args=(command, home, arguments, variables, outputs)
        )
        process.start()
        try:
            yield process, outputs
        finally:
            process.kill()
            process.join()


def forked(command, home, *arguments, **environment):
    """What `python -m captioning.COMMAND` does in the folder `home`."""
    with started(command, home, *arguments, **environment) as (process, outputs):
        process.join(LIMIT)
        status = process.exitcode
        assert status is not None, "it has not ended"
        return CompletedProcess([], status, *(output.read_text() for output in outputs))


def python(*arguments, cwd=None, env=ENVIRONMENT):
    """What a Python of its own prints, which imports all libraries anew."""
    command = [sys.executable, *arguments]
    return run_program(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=LIMIT)


def run(home, *arguments, **environment):
    """A run that must end well."""
    ended = forked("run", home, *arguments, **environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def _start(command, home, arguments, variables, outputs):
    import torch

    os.setsid()
    for descriptor, output in enumerate(outputs, start=1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), descriptor)
    os.environ.clear()
    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    sys.path[:0] = [str(home), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    module = importlib.import_module(f"captioning.{command}")
    sys.modules["__main__"] = module  # which is what further processes are told to start
    _execute(module.main, home, arguments, variables)


def _execute(command, home, arguments, environment):
    from captioning.config.command import start

    status = 1
    try:
        os.chdir(home)
        os.environ.update(environment)
        sys.argv = ["command", *arguments]
        multiprocessing.set_start_method("fork", force=True)  # again
        start(command)
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        # As Python does, which this process is to leave without: joblib ends its processes with the
        # threads.
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@dataclass(frozen=True)
class Interrupted:
    """How a command ended: the status, negative for a signal, and all that it said."""

    status: int
    said: str
    pid: int


def interrupt(command, home, ready, *how, **settings):
    """Run `command` at a terminal; each time it is `ready` type a key or send a signal to all of
    its processes.
    """
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(
        target=_interrupt, args=(sender, command, home, ready, how), kwargs=settings
    )
    process.start()
    sender.close()
    ended = receiver.recv()
    process.join()
    return ended


def _interrupt(sender, command, home, ready, how, arguments=(), environment=None):
    child, terminal = pty.fork()
    if child == 0:
        sys.stdout = os.fdopen(1, "w", buffering=1)  # the inherited one believes in a file
        _execute(command, home, arguments, environment or {})
    said, left, end = b"", list(how), time.monotonic() + LIMIT
    while time.monotonic() < end:
        if left and ready():
            sent = left.pop(0)
            if isinstance(sent, bytes):
                os.write(terminal, sent)
            else:
                os.killpg(child, sent)
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                said += os.read(terminal, 1 << 16)
            except OSError:  # nobody has the terminal any more
                break
    else:
        os.killpg(child, signal.SIGKILL)
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sender.send(Interrupted(status, said.decode(errors="replace").replace("\r\n", "\n"), child))


def wait(come):
    end = time.monotonic() + LIMIT
    while not come():
        assert time.monotonic() < end
        time.sleep(0.1)


def in_session(session):
    """The processes of a session that have not ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, its = (process / "stat").read_text().rpartition(") ")[2].split()[:4]
            if int(its) == session and state != "Z":
                found.append(process.name)
    return found
