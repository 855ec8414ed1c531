"""A backbone that counts what it is given, photographs for it, and a build of their cache."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioning.backbones.base import Backbone
from captioning.backbones.scratch import SmallCNN
from captioning.features.build import build_features
from captioning.features.cache import FeatureCache

COUNT, BATCH = 11, 2
ROW_BYTES = 9 * 7 * 2
HEADER_BYTES = 128
"""Of NumPy's format, a multiple of 64."""
ALL = range(COUNT)


def photographs(folder: Path, count: int = COUNT) -> list[Path]:
    folder.mkdir()
    random = np.random.default_rng(0)
    paths = [folder / f"{i}.png" for i in range(count)]
    for path in paths:
        Image.fromarray(random.integers(0, 256, (9, 13, 3), dtype=np.uint8)).save(path)
    return paths


class CountingCNN(SmallCNN):
    """Writes down how many images it was given, and takes a while over them if asked."""

    def __init__(
        self,
        log: Path | None = None,
        seconds: float = 0,
        factor: float = 1,
        resize: Any = "stretch",
    ) -> None:
        torch.manual_seed(0)
        super().__init__(dim=7, size=12, grid=3, trainable=False, resize=resize)
        self.log = log
        self.seconds = seconds
        with torch.no_grad():
            self.network[-1].weight.mul_(factor)

    def forward(self, images: Tensor) -> Tensor:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{len(images)}\n")
        time.sleep(self.seconds)
        return super().forward(images)


def counted(log: Path) -> int:
    return sum(map(int, log.read_text().split())) if log.exists() else 0


def build(backbone: Backbone, paths: list[Path], folder: Path, **settings: Any) -> FeatureCache:
    return build_features(
        backbone, paths, folder, **{"batch_size": BATCH, "num_workers": 0, **settings}
    )


def folders(cache: Path) -> list[str]:
    return [path.suffix for path in cache.iterdir() if path.is_dir()]


def unfinish(cache: FeatureCache) -> Path:
    """Turns a finished cache into the unfinished one that it came from; gives its folder."""
    (lock,) = cache.folder.parent.glob("*.lock")
    return cache.folder.rename(lock.with_suffix(".part"))
