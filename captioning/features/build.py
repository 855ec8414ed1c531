"""Building a feature cache: once, by one process, going on where a killed build ended.

B images in a batch, L context vectors of D features.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, get_args

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from captioning.backbones.base import Backbone
from captioning.backbones.images import ImageTransform
from captioning.errors import CaptioningError
from captioning.features.cache import (
    DATA,
    HEADER_BYTES,
    META,
    FeatureCache,
    Layout,
    Precision,
    cache_key,
    describe,
    header,
)


def build_features(
    backbone: Backbone,
    paths: Sequence[Path],
    folder: Path,
    batch_size: int = 32,
    num_workers: int = 2,
    dtype: Precision = "float16",
    progress: str = "features",
) -> FeatureCache:
    """The features of `paths`, row i for `paths[i]`: computed where they are not cached below `folder` yet.

    The images are decoded in worker processes while the backbone, on the device where it lies, computes. Features
    are appended to a file whose length says which are done, so a build that was killed goes on with the next image;
    the finished folder appears under its name at once. Of several processes that ask for the same cache one builds
    and the others wait.

    Args:
        backbone: a frozen backbone.
        paths: the photographs.
        folder: where caches lie; made if absent.
        batch_size: B, which changes nothing but speed and memory.
        num_workers: decoding processes; 0 decodes in this one.
        dtype: precision on disk.
        progress: the text before the progress bar on standard error.

    Raises:
        CaptioningError: the backbone is trainable, an image cannot be read, a feature is too large for `dtype` or not
            a number, or the disk is full.
    """
    if backbone.trainable:
        raise CaptioningError("the features of a trainable backbone change and cannot be cached; train on images")
    if not paths or dtype not in get_args(Precision):
        raise CaptioningError(
            f"a feature cache needs images and the dtype {' or '.join(get_args(Precision))}; "
            f"got {len(paths)} images and {dtype}"
        )
    key = cache_key(backbone.digest, paths, dtype)
    positions = backbone.grid[0] * backbone.grid[1]
    layout = Layout(len(paths), positions, backbone.dim, backbone.grid, dtype)
    finished = folder / key
    part = folder / f"{key}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not finished.exists():
            with _only_process(folder / f"{key}.lock"):
                if not finished.exists():
                    part.mkdir(exist_ok=True)
                    _append(part / DATA, key, layout, backbone, paths, batch_size, num_workers, progress)
                    _write_synced(part / META, describe(key, layout, backbone.settings))
                    part.replace(finished)
    except OSError as error:
        raise CaptioningError(
            f"cannot write the feature cache {part}: {error.strerror or error}. It needs "
            f"{layout.total_bytes / 1e9:.2f} GB in all; make room, and the build goes on where it ended, or choose "
            "another folder"
        ) from error
    return FeatureCache(folder, key)


@contextlib.contextmanager
def _only_process(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, which the system releases however the process ends."""
    import fcntl  # here, because Windows has none and can still train without a cache

    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for the process that builds {path.with_suffix('')}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _append(
    data: Path,
    key: str,
    layout: Layout,
    backbone: Backbone,
    paths: Sequence[Path],
    batch_size: int,
    num_workers: int,
    progress: str,
) -> None:
    """Bring the file at `data` to its full length."""
    done = _finished_rows(data, key, layout)
    needed = (layout.rows - done) * layout.row_bytes
    free = shutil.disk_usage(data.parent).free
    if needed > free:
        raise OSError(f"{needed / 1e9:.2f} GB are missing and {free / 1e9:.2f} GB are free on this disk")
    # Plain writes, because a memory map that meets a full disk kills the process (SIGBUS) instead of raising; and
    # unbuffered, because a buffer would try again to write what failed while the error is on its way.
    with (
        data.open("ab", buffering=0) as file,
        tqdm(
            desc=progress,
            total=layout.rows,
            initial=done,
            unit="image",
            mininterval=0.5 if sys.stderr.isatty() else 30,
        ) as bar,
    ):
        if file.tell() == 0:
            _write(file, header(key))
        remaining = paths[done:]
        for features in _computed(backbone, remaining, batch_size, num_workers, layout.dtype):
            _write(file, features.numpy().tobytes())
            os.fsync(file.fileno())
            bar.update(len(features))


def _finished_rows(data: Path, key: str, layout: Layout) -> int:
    """How many rows an earlier build left, after cutting off the one it was writing.

    The length counts, with no journal beside it: each batch is synced before the next is begun, and file systems
    lengthen a file only after the data it is lengthened by.
    """
    try:
        with data.open("r+b") as file:
            if file.read(HEADER_BYTES) != header(key):
                file.truncate(0)
                return 0
            length = file.seek(0, os.SEEK_END)
            rows = min((length - HEADER_BYTES) // layout.row_bytes, layout.rows)
            file.truncate(HEADER_BYTES + rows * layout.row_bytes)
            return rows
    except FileNotFoundError:
        return 0


def _write(file: BinaryIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _write_synced(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


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


def _computed(
    backbone: Backbone, paths: Sequence[Path], batch_size: int, num_workers: int, dtype: Precision
) -> Iterator[Tensor]:
    """Features of `paths` in order, `[B, L, D]` on the CPU, finite."""
    device = backbone.scale.device
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    batches = DataLoader(
        _Photographs(paths, backbone.transform),
        batch_size,
        num_workers=min(num_workers, cores),
        collate_fn=_stack,
        pin_memory=device.type == "cuda",
    )
    first = 0
    for images in batches:
        if isinstance(images, CaptioningError):
            raise images
        with torch.inference_mode():
            features = backbone(images.to(device, non_blocking=True))
            stored = features.to(getattr(torch, dtype)).contiguous().cpu()
        finite = stored.isfinite().flatten(1).all(1)
        if not finite.all():
            broken = int((~finite).nonzero()[0])
            largest = features[broken].abs().max().item()
            raise CaptioningError(
                f"the largest feature of {paths[first + broken]} is {largest:.4g}, which {dtype} cannot hold: "
                "choose float32 for the cache, or another node or weights if it is infinite or not a number"
            )
        first += len(stored)
        yield stored
