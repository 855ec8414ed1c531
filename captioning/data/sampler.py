"""Bucketed batches of images with captions of similar length, split over processes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler

BUCKET_BATCHES = 50
"""Images are shuffled, then sorted by length within this many batches: little padding, yet random batches."""


class Request(NamedTuple):
    """Positions of images, and the epoch, which determines the choice of captions."""

    epoch: int
    positions: list[int]


class BucketSampler(Sampler[Request]):
    """Yield this process' part of each batch, as positions in `lengths`.

    A global batch has `batch_size` images per process, in parts as equal as possible, so that N processes together see
    the same images as one process with an N times larger batch. In training, a last batch with fewer images than
    processes is padded with repeats, since every process takes part in every step; in evaluation each image occurs
    exactly once.

    Args:
        lengths: words in the longest caption of each image.
        batch_size: images per process and batch.
        shuffle: use the training order, which differs in each epoch; otherwise the order of `lengths`.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, shuffle: bool, seed: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
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

    def __iter__(self) -> Iterator[Request]:
        epoch, done = self._done
        for batch in self._batches()[done if epoch == self.epoch else 0 :]:
            if self.shuffle and len(batch) < self.world_size:
                batch = np.resize(batch, self.world_size)
            part = np.array_split(batch, self.world_size)[self.rank].tolist()
            if part:
                # Evaluation uses the same captions in every epoch, so that likelihoods are comparable.
                yield Request(self.epoch if self.shuffle else 0, part)

    def _batches(self) -> list[np.ndarray]:
        size = self.batch_size * self.world_size
        order = np.arange(len(self.lengths))
        if not self.shuffle:
            return [order[i : i + size] for i in range(0, len(order), size)]
        random = np.random.default_rng((self.seed, self.epoch))
        random.shuffle(order)
        batches = []
        for start in range(0, len(order), size * BUCKET_BATCHES):
            bucket = order[start : start + size * BUCKET_BATCHES]
            bucket = bucket[np.argsort(self.lengths[bucket], kind="stable")]
            batches += [bucket[i : i + size] for i in range(0, len(bucket), size)]
        return [batches[i] for i in random.permutation(len(batches))]
