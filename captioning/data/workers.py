"""The worker processes of a `DataLoader`: a signal to all processes of a run is for the main one, which ends them."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from captioning.machine import SIGNALS

TELLS_SENDERS = hasattr(signal, "sigwaitinfo")
"""Whether the system says who sent a signal; macOS and Windows do not."""


def start_worker(worker: int) -> None:
    """What every worker does first (its `worker_init_fn`); it is started within `starting_workers`.

    From then on it ignores the signals of a terminal or a scheduler, so that the main process can save what there is
    before all of them end. Of the main process it takes them still: that is how PyTorch and Python end a worker that
    has not understood that its work is done. A worker whose main process has died ends by itself.

    And it keeps the garbage collector from touching, and so copying, all that the main process has read.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if TELLS_SENDERS:  # SIGTERM goes on waiting, here and in all threads from here on
        threading.Thread(target=_end_at_the_word_of, args=(multiprocessing.parent_process(),), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    elif hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    gc.freeze()


def _end_at_the_word_of(main: Any) -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != main.pid:
        pass
    os._exit(0)


@contextmanager
def starting_workers() -> Iterator[None]:
    """Keeps the signals waiting while workers are started within, for them until they come to `start_worker`."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
