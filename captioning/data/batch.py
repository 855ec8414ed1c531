"""The batch that the data module yields, and the images that each batch has.

B images, N captions per image, T = C + 1 tokens (BOS, words, EOS), C prediction steps, W real
target positions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from captioning.tokens import BOS, EOS, PAD

BUCKET_BATCHES = 50
"""Images are shuffled, then sorted by length within this many batches: little padding, yet random
batches.
"""


@dataclass(slots=True)
class Batch:
    """B images with up to N captions each.

    `inputs` are features `[B, L, D]` of a frozen backbone, missing vectors marked as in
    `captioning.backbones.context`, or `pixels`: images `[B, C, H, W]` uint8, with C = 3 colours, or
    C = 4 if photographs are padded; or ids of source words `[B, S]` int64, PAD after the last.
    """

    # `[B]`, the position of each image in its split, as tensors cannot hold the ids that are
    # strings
    index: Tensor
    inputs: Tensor
    tokens: Tensor  # `[B, N, T]`; an image with fewer captions has rows of PAD
    # `[W]`, the real target positions in `[B, N, C]` (a boolean mask would force a GPU sync)
    word_index: Tensor
    pixels: bool

    def to(self, device: torch.device | str) -> Self:  # called by Lightning
        # A copy from pinned memory does not wait for what a GPU still computes.
        return self._with_each(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))

    def pin_memory(self) -> Self:  # called by the data loader
        return self._with_each(Tensor.pin_memory)

    def _with_each(self, action: Callable[[Tensor], Tensor]) -> Self:
        tensors: dict[str, Any] = {
            f.name: action(getattr(self, f.name)) for f in fields(self) if f.name != "pixels"
        }
        return replace(self, **tensors)

    @property
    def sources(self) -> Tensor:
        """Input tokens `[B, N, C]`: BOS w1 .. wn."""
        return self.tokens[..., :-1]

    @property
    def targets(self) -> Tensor:
        """Target tokens `[W]` at the real positions: w1 .. wn EOS."""
        return self.tokens[..., 1:].flatten()[self.word_index]

    @property
    def captions(self) -> Tensor:
        """Number of captions, a scalar tensor on the device; at most B * N."""
        return (self.tokens[..., 0] == BOS).sum()


def collate(
    index: Sequence[int],
    inputs: Tensor,
    captions: Sequence[Sequence[Sequence[int]]],
    pixels: bool = False,
) -> Batch:
    """Build a batch from inputs `[B, ...]` and each image's captions.

    Captions are word ids without BOS and EOS.
    """
    n = max(1, *map(len, captions))
    length = 2 + max((len(words) for image in captions for words in image), default=0)
    tokens = torch.full((len(captions), n, length), PAD)
    for b, image in enumerate(captions):
        for row, words in enumerate(image):
            tokens[b, row, : len(words) + 2] = torch.tensor([BOS, *words, EOS])
    word_index = (tokens[..., 1:] != PAD).flatten().nonzero().squeeze(1)
    return Batch(torch.tensor(index), inputs, tokens, word_index, pixels)


class BatchIndex(NamedTuple):
    """Positions of images, and the epoch, which determines the choice of captions."""

    epoch: int
    positions: list[int]


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
        lengths: Sequence[int],
        batch_size: int,
        shuffle: bool,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
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
        epoch, done = self._done
        for batch in self._batches()[done if epoch == self.epoch else 0 :]:
            if self.shuffle and len(batch) < self.world_size:
                batch = np.resize(batch, self.world_size)
            part = np.array_split(batch, self.world_size)[self.rank].tolist()
            if part:
                # Evaluation uses the same captions in every epoch, so that likelihoods are
                # comparable.
                yield BatchIndex(self.epoch if self.shuffle else 0, part)

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
