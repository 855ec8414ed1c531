"""Photographs of a feature cache as batches, decoded in other processes.

B images in a batch, H rows and W columns of pixels.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from captioning.backbones.images import ImageTransform
from captioning.errors import CaptioningError
from captioning.processes import start_worker, starting_workers


class _Photographs(Dataset[Tensor | CaptioningError]):
    """Decoded images `[3, H, W]` uint8; a broken one's error is an item, so that no worker's traceback hides it."""

    def __init__(self, paths: Sequence[Path], transform: ImageTransform) -> None:
        self.paths = paths
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor | CaptioningError:
        try:
            return self.transform.read(self.paths[index])
        except CaptioningError as error:
            return error


def _stack(items: list[Tensor | CaptioningError]) -> Tensor | CaptioningError:
    images = []
    for item in items:
        if isinstance(item, CaptioningError):
            return item
        images.append(item)
    return torch.stack(images)


def decoded(
    paths: Sequence[Path], transform: ImageTransform, batch_size: int, num_workers: int, pin_memory: bool
) -> Iterator[Tensor]:
    """Batches `[B, 3, H, W]` uint8 of `paths` in order, decoded ahead by `num_workers` processes.

    Raises:
        CaptioningError: an image cannot be read.
        RuntimeError: one of the processes was killed; PyTorch raises it at whatever this process does at that moment.
    """
    photographs = _Photographs(paths, transform)
    loader = DataLoader(
        photographs,
        batch_size,
        num_workers=num_workers,
        collate_fn=_stack,
        pin_memory=pin_memory,
        worker_init_fn=start_worker,
    )
    with starting_workers():
        batches = iter(loader)
    for images in batches:
        if isinstance(images, CaptioningError):
            raise images
        yield images
