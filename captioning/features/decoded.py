"""Photographs of a feature cache as batches, decoded in other processes.

B images of C channels in a batch, H rows and W columns of pixels.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from captioning.backbones.images import ImageTransform
from captioning.data.dataset import Photographs
from captioning.data.loader import Loader


def decoded(
    paths: Sequence[Path], transform: ImageTransform, batch_size: int, num_workers: int, pin_memory: bool
) -> Iterator[Tensor]:
    """Batches `[B, C, H, W]` uint8 of `paths` in order, decoded ahead by `num_workers` processes.

    Raises:
        CaptioningError: an image cannot be read.
        RuntimeError: one of the processes was killed; PyTorch raises it at whatever this process does at that moment.
    """
    rows = range(len(paths))
    batches = [rows[first : first + batch_size] for first in rows[::batch_size]]
    return iter(
        Loader(Photographs(paths, transform).rows, sampler=batches, num_workers=num_workers, pin_memory=pin_memory)
    )
