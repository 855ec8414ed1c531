"""A backbone that counts what it is given, photographs for it, and a build of their cache."""

import time
from functools import partial

import torch
from pictures import noise

from captioning.backbones.scratch import SmallCNN
from captioning.data.image_files import fingerprints
from captioning.features import build as builder

COUNT, BATCH = 11, 2
ROW_BYTES = 9 * 7 * 2
HEADER_BYTES = 128
"""Of NumPy's format, a multiple of 64."""
ALL = range(COUNT)


def photographs(folder, count=COUNT):
    paths = [folder / f"{i}.png" for i in range(count)]
    for seed, path in enumerate(paths):
        noise(path, (13, 9), seed)
    return paths


class CountingCNN(SmallCNN):
    """Writes down how many images it was given, and takes a while over them if asked."""

    def __init__(self, log=None, seconds=0, factor=1, resize="stretch"):
        torch.manual_seed(0)
        super().__init__(dim=7, size=12, grid=3, trainable=False, resize=resize)
        self.log = log
        self.seconds = seconds
        with torch.no_grad():
            self.network[-1].weight.mul_(factor)

    def forward(self, images):
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{len(images)}\n")
        time.sleep(self.seconds)
        return super().forward(images)


def counted(log):
    return sum(map(int, log.read_text().split())) if log.exists() else 0


def build(backbone, paths, folder, **settings):
    builder.BATCH = settings.get("batch_size", BATCH)  # as any number computes the same
    workers = settings.get("num_workers", 0)
    batches_from = partial(builder.compute_features, backbone, paths, num_workers=workers)
    store = builder.FeatureStore(folder)
    return store.copied(backbone, fingerprints(paths), batches_from, "test")


def folders(cache):
    return [path.suffix for path in (cache / "features").iterdir() if path.is_dir()]


def unfinish(cache):
    """Turns a finished cache into the unfinished one that it came from; gives its folder."""
    (lock,) = cache.folder.parent.glob("*.lock")
    return cache.folder.rename(lock.with_suffix(".part"))
