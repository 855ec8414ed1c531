"""Captioned photographs as batches.

B images of C channels, L context vectors of D features, H rows and W columns of pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from captioning.data.batch import Batch, BatchIndex, collate
from captioning.data.caption_words import CaptionWords, offsets
from captioning.data.example import Example, Reference, reference_counts, reference_words
from captioning.data.image_files import HINT, Reading
from captioning.data.readers.kept import kept_ids
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError

SAMPLE = 64  # images that give the scale of a pretrained network which is trained further
_STREAM = 1  # separates the draws of views from others keyed by seed, epoch and position


class Inputs(Protocol):
    """The photographs of one split as tensors: a feature cache or `ImageFiles`; or its source
    sentences.
    """

    def rows(self, indices: Sequence[int]) -> Tensor:
        """The photographs at `indices` of the split: features `[B, L, D]`, or images `[B, C, H, W]`
        uint8, which the backbone has yet to process.
        """
        ...

    def fit_scale(self, backbone: Any) -> None:
        """Set the backbone's factor to unit scale, with these as the training split."""
        ...


@dataclass(frozen=True)
class ImageFiles:
    """Photographs decoded on demand: `Inputs` of a trainable backbone."""

    paths: Sequence[Path]
    transform: Reading

    def at(self, epoch: int) -> "ImageFiles":
        """The photographs in views drawn for `epoch`, since nothing is cached."""
        return ImageFiles(self.paths, self.transform.resample(epoch))

    def rows(self, indices: Sequence[int]) -> Tensor:
        """`[B, C, H, W]` uint8."""
        try:
            return torch.stack([self.transform.read(self.paths[i]) for i in indices])
        except CaptioningError as error:
            raise CaptioningError(f"{error}; {HINT}") from error

    def fit_scale(self, backbone: Any) -> None:
        """Measure it on some images, if there is something to measure."""
        if backbone.pretrained:
            indices = np.linspace(0, len(self.paths) - 1, SAMPLE).round().astype(np.int64)
            backbone.measure_scale(self.rows(indices.tolist()))


@dataclass(frozen=True)
class Views:
    """Several views of the same photographs.

    Each epoch draws one per photograph, independent of batches.
    """

    views: Sequence[Inputs]
    seed: int

    def rows(self, indices: Sequence[int], epoch: int) -> Tensor:
        """Like `Inputs.rows`, with each photograph in its view of `epoch`."""
        keys = ((self.seed, epoch, index, _STREAM) for index in indices)
        drawn = np.array([np.random.default_rng(key).random() for key in keys])
        count = len(self.views)
        shown = count - 1 - (count * drawn).astype(int)  # counted from the last
        groups = [(shown == number).nonzero()[0] for number in range(count)]
        rows = []
        for view, group in zip(self.views, groups, strict=True):
            if len(group):
                now = view.at(epoch) if isinstance(view, ImageFiles) else view
                rows.append(now.rows([indices[position] for position in group]))
        return torch.cat(rows)[np.concatenate(groups).argsort()]


class CaptionDataset(Dataset[Batch]):
    """One split, whose items are batches, so that features are gathered by one indexed read.

    Args:
        inputs: the photographs of `examples`, in the same order.
        max_words: the model skips longer references (the scores still use them).
        max_pieces: likewise, in ids; None: of any number.
        captions_per_image: N, the most captions an image contributes to a batch; from more, each
            epoch draws N, keyed by (seed, epoch, position).
        drop_uncaptioned: leave out images whose references are all too long, as in training.
        views: further views of the images; each epoch draws one of these or `inputs` per image.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        inputs: Inputs,
        vocabulary: Vocabulary,
        max_words: int,
        captions_per_image: int,
        drop_uncaptioned: bool,
        seed: int = 0,
        *,
        views: Sequence[Inputs] = (),
        max_pieces: int | None = None,
    ):
        self.examples, self.inputs = examples, inputs
        self._views = Views([inputs, *views], seed) if views else None
        self.captions_per_image, self.seed = captions_per_image, seed
        # Arrays, because every Python object that a worker reads is soon copied into its process.
        captions = CaptionWords.of(reference_words(examples))
        self._ids = kept_ids(captions, vocabulary, getattr(examples, "kept", None))
        words, lengths = captions.lengths, self._ids.lengths
        self._kept = (words > 0) & (words <= max_words) & (lengths > 0)
        if max_pieces is not None:
            self._kept &= lengths <= max_pieces
        self._first = offsets(reference_counts(examples))  # of each image, of all captions
        self.positions = np.arange(len(examples), dtype=np.int32)
        if drop_uncaptioned:
            kept = np.diff(offsets(self._kept)[self._first])
            self.positions = self.positions[kept > 0]
        self.dropped = len(examples) - len(self.positions)

    def lengths(self) -> np.ndarray:
        """Tokens of the longest caption that each image of `positions` may contribute."""
        longest = np.zeros(len(self.examples), np.int32)
        captioned = np.diff(self._first) > 0
        if captioned.any():
            lengths = self._ids.lengths * self._kept
            longest[captioned] = np.maximum.reduceat(lengths, self._first[:-1][captioned])
        return longest[self.positions]

    def chosen(self, position: int, epoch: int) -> list[Reference]:
        """The references that the image at `position` contributes to a batch, in row order."""
        references, first = self.examples[position].references, self._first[position]
        return [references[caption - first] for caption in self._chosen(position, epoch)]

    def _chosen(self, position: int, epoch: int) -> list[int]:
        """Like `chosen`, as caption numbers in the split."""
        first, end = self._first[position : position + 2].tolist()
        kept = [n for n, is_kept in enumerate(self._kept[first:end].tolist(), first) if is_kept]
        if len(kept) <= self.captions_per_image:
            return kept
        random = np.random.default_rng((self.seed, epoch, position))
        return sorted(random.choice(kept, self.captions_per_image, replace=False).tolist())

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, request: BatchIndex) -> Batch:
        positions = self.positions[request.positions].tolist()
        epoch = request.epoch
        captions = [[self._ids[n] for n in self._chosen(i, epoch)] for i in positions]
        views = self._views
        inputs = self.inputs.rows(positions) if views is None else views.rows(positions, epoch)
        return collate(positions, inputs, captions)
