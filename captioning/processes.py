"""The processes of one run: which of them is rank 0, and how none outlives it."""

import functools
import os
import signal
import sys
import threading
import time

_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
"""Where launchers (torchrun, Lightning, Slurm) tell a process its place; all that are set are 0 on rank 0 alone."""

_GRACE = 20
"""Seconds for an orderly end after that of the launching process."""


def is_first() -> bool:
    """Whether this is rank 0, before there is a trainer to ask."""
    return all(os.environ.get(name, "0") == "0" for name in _RANKS)


def end_with_launcher() -> None:
    """Ends this process soon after rank 0, if that is the one that has started it.

    Lightning's rank 0 kills the processes that it has started when one of them dies, but who ends them when it dies
    itself? On GPUs they would wait for it until the process group's timeout, half an hour. torchrun sees to its own.
    """
    if any(argument.startswith("hydra.job.name=train_ddp_process_") for argument in sys.argv):  # Lightning's mark
        end_with(os.getppid())


@functools.cache  # once for each
def end_with(launcher: int) -> None:
    """Ends this process soon after its parent `launcher`, as by SIGTERM if it can be."""

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(1)  # whatever the main thread waits for

    threading.Thread(target=watch, daemon=True).start()
