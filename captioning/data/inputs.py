"""What a batch is filled with for its photographs: features, or pixels.

B images of C channels, L context vectors of D features, H rows and W columns of pixels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from captioning.data.photographs import ADVICE, Reading
from captioning.errors import CaptioningError

_STREAM = 1
"""Tells the draws of views from others that are keyed by seed, epoch and position."""


class Inputs(Protocol):
    """What stands for the photographs of one split: a feature cache, or `Photographs`.

    Attributes:
        pixels: whether the rows are images, which the backbone has still to see, or what it has made of them.
    """

    pixels: bool

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Those of the photographs at `indices` of the split: `[B, L, D]`, or with `pixels` `[B, C, H, W]` uint8."""
        ...


class Photographs:
    """The photographs themselves, decoded when asked for: `Inputs` of a trainable backbone."""

    pixels = True

    def __init__(self, paths: Sequence[Path], transform: Reading) -> None:
        self.paths, self.transform = list(paths), transform

    def rows(self, indices: Sequence[int]) -> Tensor:
        """`[B, C, H, W]` uint8.

        Raises:
            CaptioningError: one of them cannot be read.
        """
        try:
            return torch.stack([self.transform.read(self.paths[i]) for i in indices])
        except CaptioningError as error:
            raise CaptioningError(f"{error}; {ADVICE}") from error


class Views:
    """Several views of the same photographs, of which each epoch shows one, whatever batch a photograph is in.

    Args:
        views: of the same photographs in the same order, the untouched ones first.
        seed: of the draws.
    """

    def __init__(self, views: Sequence[Inputs], seed: int) -> None:
        self._views, self._seed = list(views), seed

    def rows(self, indices: Sequence[int], epoch: int) -> Tensor:
        """Those of the photographs at `indices`, as `Inputs.rows` gives them, each in the view of `epoch`."""
        shown = np.array([self._shown(index, epoch) for index in indices])
        groups = [(shown == number).nonzero()[0] for number in range(len(self._views))]
        rows = [
            view.rows([indices[place] for place in group])
            for view, group in zip(self._views, groups, strict=True)
            if len(group)
        ]
        return torch.cat(rows)[np.concatenate(groups).argsort()]

    def _shown(self, index: int, epoch: int) -> int:
        # counted from the last, so that of two the draws are those of runs with `data.mirror=0.5`, which this was once
        count = len(self._views)
        return count - 1 - int(count * np.random.default_rng((self._seed, epoch, index, _STREAM)).random())
