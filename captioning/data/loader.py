"""A DataLoader whose workers ignore signals; the main process saves its work and ends them."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader, Dataset

from captioning.errors import CaptioningError
from captioning.machine import SIGNALS, cpu_count

T = TypeVar("T")


class Loader(DataLoader[T]):
    """Fetch an item for each request of the `sampler`; `settings` are those of `DataLoader`.

    There are `num_workers` processes, at most one per core.

    A worker's `CaptioningError` is passed on as an item and raised in the main process with its
    message unchanged; PyTorch would replace the message by the worker's traceback.
    """

    def __init__(self, fetch: Callable[[Any], T], num_workers: int = 0, **settings: Any) -> None:
        # joblib's processes (hydra/launcher=processes) set a start method that cannot start
        # workers.
        fork = num_workers and "fork" in multiprocessing.get_all_start_methods()
        super().__init__(
            _Fetched(fetch),
            batch_size=None,
            num_workers=min(num_workers, cpu_count()),
            worker_init_fn=_start_worker,
            multiprocessing_context="fork" if fork else None,
            **settings,
        )

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        if not hasattr(signal, "pthread_sigmask"):  # on Windows
            return _raising(super().__iter__())
        # workers inherit this until `_start_worker`
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            return _raising(super().__iter__())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Fetched(Dataset[Any], Generic[T]):
    def __init__(self, fetch: Callable[[Any], T]) -> None:
        self.fetch = fetch

    def __getitem__(self, request: Any) -> T | CaptioningError:
        try:
            return self.fetch(request)
        except CaptioningError as error:
            return error


def _raising(items: Iterator[T | CaptioningError]) -> Iterator[T]:
    try:
        for item in items:
            if isinstance(item, CaptioningError):
                # otherwise the traceback keeps the workers alive, and ending each takes seconds
                del items
                raise item
            yield item
    except (EOFError, ConnectionError, FileNotFoundError) as error:
        # A worker was killed after it announced a batch and before this process received the file
        # descriptors of its tensors. PyTorch raises a RuntimeError for a worker that is killed at
        # any other moment.
        raise RuntimeError("DataLoader worker was killed while it handed over a batch") from error


def _start_worker(worker: int) -> None:
    # Signals from a terminal or a scheduler reach the workers too. PyTorch and Python end a worker
    # by SIGTERM from the main process; SIGTERM from other processes stays blocked, in all threads
    # started from here on. On systems that do not report the sender (macOS, Windows), any SIGTERM
    # ends the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        threading.Thread(
            target=_end_on_sigterm_of, args=(multiprocessing.parent_process(),), daemon=True
        ).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    elif hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # otherwise the garbage collector touches, and so copies, all memory of the main process
    gc.freeze()


def _end_on_sigterm_of(main: Any) -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != main.pid:
        pass
    os._exit(0)
