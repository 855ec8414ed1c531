"""Captioned photographs as batches.

B images, L context vectors of D features, H rows and W columns of pixels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from captioning.data.batch import Batch, collate
from captioning.data.example import Example, Reference
from captioning.data.sampler import Request
from captioning.data.vocabulary import Vocabulary


class Inputs(Protocol):
    """What stands for the photographs of one split: a feature cache, or `Photographs`."""

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Those of the photographs at `indices` of the split: `[B, L, D]` or `[B, 3, H, W]` uint8."""
        ...


class Reading(Protocol):
    """How a file becomes an image `[3, H, W]` uint8."""

    def read(self, path: str | Path) -> Tensor:
        """Decodes and resizes one photograph."""
        ...


class Photographs:
    """The photographs themselves, decoded when asked for: `Inputs` of a trainable backbone."""

    def __init__(self, paths: Sequence[Path], transform: Reading) -> None:
        self.paths, self.transform = list(paths), transform

    def rows(self, indices: Sequence[int]) -> Tensor:
        """`[B, 3, H, W]` uint8."""
        return torch.stack([self.transform.read(self.paths[i]) for i in indices])


class CaptionDataset(Dataset[Batch]):
    """One split; an item is a whole batch, so that features are gathered by one indexed read.

    Args:
        examples: the split.
        inputs: of the same photographs in the same order.
        vocabulary: numbers the words.
        max_words: longer references are not read by the model (they stay references of the scores).
        captions_per_image: N, the most captions an image contributes to a batch; where it has more, each epoch draws
            anew, keyed by (seed, epoch, position).
        drop_uncaptioned: leave out the images all of whose references are too long, as training does.
        seed: of the draws.
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
    ) -> None:
        self.examples, self.inputs, self.vocabulary = examples, inputs, vocabulary
        self.captions_per_image, self.seed = captions_per_image, seed
        self._usable = [[r for r in e.references if 0 < len(r.words) <= max_words] for e in examples]
        self.positions = [i for i, usable in enumerate(self._usable) if usable or not drop_uncaptioned]
        self.dropped = len(examples) - len(self.positions)

    def lengths(self) -> list[int]:
        """The longest caption that each image of `positions` may contribute, in words."""
        return [max((len(r.words) for r in self._usable[i]), default=0) for i in self.positions]

    def chosen(self, position: int, epoch: int) -> list[Reference]:
        """The references of the image at `position` of the split that make its rows of a batch, in row order."""
        usable = self._usable[position]
        if len(usable) <= self.captions_per_image:
            return usable
        random = np.random.default_rng((self.seed, epoch, position))
        return [usable[i] for i in sorted(random.choice(len(usable), self.captions_per_image, replace=False))]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, request: Request) -> Batch:
        positions = [self.positions[i] for i in request.positions]
        captions = [[self.vocabulary.encode(r.words) for r in self.chosen(i, request.epoch)] for i in positions]
        return collate(positions, self.inputs.rows(positions), captions)
