"""Commands that a terminal starts and interrupts: each in a session of its own, forked off a process that has imported
everything already."""

import atexit
import multiprocessing
import os
import pty
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from captioning import run
from captioning.backbones.scratch import SmallCNN
from captioning.config.command import start
from captioning.data.shapes import ShapesReader
from captioning.features.build import build_features

CTRL_C = b"\x03"
LIMIT = 600


@dataclass(frozen=True)
class Interrupted:
    """How a command ended: the status, negative for a signal, and all that it said."""

    status: int
    said: str
    pid: int


@contextmanager
def terminals() -> Iterator[Callable[..., Interrupted]]:
    """Gives `interrupt`, in that process; what it is called with has to be picklable."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda *arguments, **settings: pool.submit(interrupt, *arguments, **settings).result(LIMIT)


def interrupt(
    command: Callable[[], object],
    home: Path,
    ready: Callable[[], bool],
    *how: bytes | int,
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Interrupted:
    """Runs `command` in `home`; each time it is `ready` types a key or sends a signal to all of its processes."""
    child, terminal = pty.fork()
    if child == 0:
        execute(command, home, arguments, environment or {})
    said, left = b"", list(how)
    end = time.monotonic() + LIMIT
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
    return Interrupted(status, said.decode(errors="replace").replace("\r\n", "\n"), child)


def execute(command: Any, home: Path, arguments: tuple[str, ...], environment: Mapping[str, str]) -> NoReturn:
    status: Any = 1
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
        # As Python does, which this process is to leave without: joblib ends its processes with the threads.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait_for_the_end_of(session: int) -> None:
    """Of all its processes, whose first one has ended."""
    end = time.monotonic() + LIMIT
    while any(_is_of(session, process) for process in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < end
        time.sleep(0.1)


def _is_of(session: int, process: Path) -> bool:
    with suppress(OSError):
        state, _, _, its = (process / "stat").read_text().rpartition(") ")[2].split()[:4]
        return int(its) == session and state != "Z"
    return False


def train() -> object:
    return run.main()


class SlowCNN(SmallCNN):
    """Takes its time, and writes down that it does."""

    def forward(self, images: Tensor) -> Tensor:
        with Path("batches").open("a") as file:
            file.write("x")
        time.sleep(0.1)
        return super().forward(images)


def compute_features() -> None:
    torch.manual_seed(0)
    paths = sorted(Path("photographs").iterdir())
    build_features(SlowCNN(3, 32, 2, trainable=False), paths, Path("cache"), batch_size=2, num_workers=2)


def draw() -> None:
    ShapesReader("cache", train=100_000)()


def end_slowly() -> None:
    """Not within this life, and without a look at signals."""
    Path("beginning").touch()
    try:
        while True:
            time.sleep(0.01)
    finally:
        Path("ending").touch()
        sum(range(10**12))
