"""The data loader, whose workers ignore signals, and the sampler of its batches.

The main process saves its work and ends the workers.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.queues import Queue
from typing import Any, Generic, TypeVar

import numpy as np
from torch.utils.data import DataLoader, Dataset, Sampler

from captioning.data.batch import BatchIndex
from captioning.errors import CaptioningError
from captioning.machine import SIGNALS, cpu_count

T = TypeVar("T")
BUCKET_BATCHES = 50
"""Images are shuffled, then sorted by length within this many batches: little padding, yet random
batches.
"""


class Loader(DataLoader[T]):
    """Fetch an item for each request of the `sampler`; `settings` are those of `DataLoader`.

    There are `num_workers` processes, at most one per core.

    A worker's `CaptioningError` is passed on as an item and raised in the main process with its
    message unchanged; PyTorch would replace the message by the worker's traceback.
    """

    def __init__(self, fetch: Callable[[Any], T], num_workers: int, **settings: Any):
        super().__init__(
            _Fetched(fetch),
            batch_size=None,
            num_workers=min(num_workers, cpu_count()),
            worker_init_fn=_start_worker,
            # joblib's processes (hydra/launcher=processes) set a start method that cannot start
            # workers
            multiprocessing_context="fork" if num_workers else None,
            **settings,
        )

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        # workers inherit this until `_start_worker`
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            return _raising(super().__iter__())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Fetched(Dataset[Any], Generic[T]):
    def __init__(self, fetch: Callable[[Any], T]):
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
    # started from here on. On systems that do not report the sender (macOS), any SIGTERM ends the
    # worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # otherwise a batch that shared memory has no room for is dropped, and waited for without end
    Queue._on_queue_feeder_error = lambda *_: os._exit(1)  # type: ignore[attr-defined]
    if hasattr(signal, "sigwaitinfo"):
        threading.Thread(
            target=_end_on_sigterm_of, args=(multiprocessing.parent_process(),), daemon=True
        ).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    else:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # otherwise the garbage collector touches, and so copies, all memory of the main process
    gc.freeze()


def _end_on_sigterm_of(main: Any) -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != main.pid:
        pass
    os._exit(0)


class BucketSampler(Sampler[BatchIndex]):
    """Yield this process' part of each batch, as positions in `lengths`.

    A global batch has `batch_size` images per process, in parts as equal as possible, so that N
    processes together see the same images as one process with an N times larger batch. In training,
    a last batch with fewer images than processes is padded with repeats, since every process takes
    part in every step; in evaluation each image occurs exactly once.

    Args:
        lengths: words in the longest caption of each image.
        batch_size: images per process and batch.
        shuffle: use the training order, which differs in each epoch; otherwise the order of
            `lengths`.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        batch_size: int,
        shuffle: bool,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        self.lengths = np.asarray(lengths)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.rank, self.world_size = rank, world_size
        self.epoch, self._done = 0, (0, 0)

    def resume(self, epoch: int, done: int) -> None:
        """Start at `epoch`, after the `done` batches that an interrupted run has trained on."""
        self.epoch, self._done = epoch, (epoch, done)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order; called by Lightning."""
        self.epoch = epoch

    def __len__(self) -> int:
        full, rest = divmod(len(self.lengths), self.batch_size * self.world_size)
        return full + (self.rank < rest or (self.shuffle and rest > 0))

    def __iter__(self) -> Iterator[BatchIndex]:
        # Batches are slices, as lists of the positions and batches of millions would fill memory.
        order = np.arange(len(self.lengths), dtype=np.int32)
        size = self.batch_size * self.world_size
        starts = np.arange(0, len(order), size)
        if self.shuffle:
            random = np.random.default_rng((self.seed, self.epoch))
            random.shuffle(order)
            for start in starts[::BUCKET_BATCHES]:
                bucket = order[start : start + size * BUCKET_BATCHES]
                bucket[:] = bucket[np.argsort(self.lengths[bucket], kind="stable")]
            random.shuffle(starts)
        epoch, done = self._done
        for start in starts[done if epoch == self.epoch else 0 :]:
            batch = order[start : start + size]
            if self.shuffle and len(batch) < self.world_size:
                batch = np.resize(batch, self.world_size)
            part = np.array_split(batch, self.world_size)[self.rank].tolist()
            if part:
                # Evaluation uses the same captions in every epoch, so that likelihoods are
                # comparable.
                yield BatchIndex(self.epoch if self.shuffle else 0, part)
