"""What a batch is filled with for its photographs: features, or pixels.

B images of C channels, L context vectors of D features, H rows and W columns of pixels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from captioning.data.photographs import ADVICE, Reading
from captioning.errors import CaptioningError


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
