"""What a batch is filled with for its photographs: features, or pixels.

B images, L context vectors of D features, H rows and W columns of pixels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor


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
