"""Items fetched ahead by worker processes, which ignore signals: the main process saves its work and ends them."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader, Dataset

from captioning.errors import CaptioningError
from captioning.machine import SIGNALS

T = TypeVar("T")


class Loader(DataLoader[T]):
    """Fetch an item for each request of its `sampler`; further settings are a `DataLoader`'s.

    A worker's `CaptioningError` travels as an item and is raised where the items are read, in the words that it was
    raised with: PyTorch itself would put the worker's traceback in their place.
    """

    def __init__(self, fetch: Callable[[Any], T], **settings: Any) -> None:
        # joblib's processes, of hydra/launcher=processes, have a way of their own that starts no workers.
        fork = settings.get("num_workers") and "fork" in multiprocessing.get_all_start_methods()
        super().__init__(
            _Fetched(fetch),
            batch_size=None,
            worker_init_fn=_start_worker,
            multiprocessing_context="fork" if fork else None,
            **settings,
        )

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        with _starting_workers():
            items = super().__iter__()
        return _raising(items)


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
                del items  # or the traceback keeps the workers, which the garbage collector ends after seconds for each
                raise item
            yield item
    except (EOFError, ConnectionError, FileNotFoundError) as error:
        # A worker that was killed after it announced a batch, and before this process took the file descriptors of
        # its tensors: PyTorch has a RuntimeError of its own for a worker that is killed at any other moment.
        raise RuntimeError("DataLoader worker was killed while it handed over a batch") from error


def _start_worker(worker: int) -> None:
    # Signals of a terminal or a scheduler reach the workers too. SIGTERM of the main process is how PyTorch and Python
    # end a worker; that of others goes on waiting, here and in all threads from here on. Where the system does not say
    # who sent a signal (macOS, Windows), any SIGTERM ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        threading.Thread(target=_end_on_sigterm_of, args=(multiprocessing.parent_process(),), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    elif hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    gc.freeze()  # or the garbage collector touches, and so copies, all that the main process has read


def _end_on_sigterm_of(main: Any) -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != main.pid:
        pass
    os._exit(0)


@contextmanager
def _starting_workers() -> Iterator[None]:
    # Signals wait meanwhile, for workers until they come to `_start_worker`.
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
