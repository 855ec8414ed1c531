"""Building a feature cache: once, by one process, going on where a killed build ended.

B images in a batch, L context vectors of D features.
"""

import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, get_args

import torch
from torch import Tensor
from tqdm import tqdm

from captioning.backbones.base import Backbone
from captioning.errors import CaptioningError
from captioning.features.cache import (
    DATA,
    HEADER_BYTES,
    META,
    PHOTOGRAPHS,
    FeatureCache,
    Layout,
    Precision,
    cache_key,
    describe,
    fingerprints,
    header,
)
from captioning.features.decoded import decoded


def build_features(
    backbone: Backbone,
    paths: Sequence[Path],
    folder: Path,
    batch_size: int | None = None,
    num_workers: int | None = None,
    dtype: Precision = "float16",
    progress: str = "features",
) -> FeatureCache:
    """The features of `paths`, row i for `paths[i]`: computed where they are not cached below `folder` yet.

    The images are decoded in worker processes while the backbone, on the device where it lies, computes. Features
    are appended to a file whose length says which are done, so a build that was killed goes on with the next image, and
    so does one that stopped at a broken image, once that is mended or left out. The finished folder appears under its
    name at once. Of several processes that ask for the same cache one builds and the others wait.

    Args:
        backbone: a frozen backbone.
        paths: the photographs.
        folder: where caches lie; made if absent.
        batch_size: B, which changes nothing but speed and memory. None: 32 on a GPU, and 8 on a CPU, where VGG-11
            takes a fifth less time for an image than in batches of 32, which leave its caches.
        num_workers: decoding processes; 0 decodes in this one. None: as many as there are cores for a backbone on a
            GPU, which is faster than all of them, and 2 for one on the CPU, which needs the cores itself.
        dtype: precision on disk.
        progress: the text before the progress bar on standard error.

    Raises:
        CaptioningError: the backbone is trainable, an image cannot be read, a feature is too large for `dtype` or not
            a number, the disk is full, or a decoding process was killed.
    """
    if backbone.trainable:
        raise CaptioningError("the features of a trainable backbone change and cannot be cached; train on images")
    if not paths or dtype not in get_args(Precision):
        raise CaptioningError(
            f"a feature cache needs images and the dtype {' or '.join(get_args(Precision))}; "
            f"got {len(paths)} images and {dtype}"
        )
    photographs = fingerprints(paths)
    digest = backbone.digest
    key = cache_key(digest, dtype, photographs)
    layout = Layout(len(paths), backbone.grid[0] * backbone.grid[1], backbone.dim, backbone.grid, dtype)
    finished = folder / key
    # An unfinished cache is named after its first row alone, so that it is found again when a photograph behind the
    # finished rows was mended or taken out.
    part = folder / f"{cache_key(digest, dtype, photographs[:1])}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not finished.exists():
            with _only_process(part.with_suffix(".lock")):
                if not finished.exists():
                    part.mkdir(exist_ok=True)
                    done = _finished_rows(part, digest, photographs, layout)
                    _make_room(part, key, done, photographs, layout)
                    batches = _computed(backbone, paths[done:], batch_size, num_workers, dtype)
                    _append(part / DATA, batches, done, layout.rows, progress)
                    _write_synced(part / META, describe(key, layout, backbone.settings).encode())
                    part.replace(finished)
    except OSError as error:
        raise CaptioningError(
            f"cannot write the feature cache {part}: {error.strerror or error}. It needs "
            f"{layout.total_bytes / 1e9:.2f} GB in all; make room, and the build goes on where it ended, or choose "
            "another folder"
        ) from error
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise CaptioningError(
            f"a process that decodes photographs was killed, most likely for want of memory ({error}): free memory, or "
            "shared memory where a container limits it, and the build goes on where it ended"
        ) from error
    return FeatureCache(folder, key)


@contextlib.contextmanager
def _only_process(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, which the system releases however the process ends.

    Unlike one of `flock`, it is not passed on to the decoding processes, which outlive a killed build by seconds.
    """
    import fcntl  # here, because Windows has none and can still train without a cache

    with path.open("wb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for the process that builds {path.with_suffix('')}", file=sys.stderr)
            fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def _finished_rows(part: Path, digest: str, photographs: Sequence[bytes], layout: Layout) -> int:
    """How many rows of an earlier build are the rows of this one.

    The length counts, with no journal beside it: each batch is synced before the next is begun, and file systems
    lengthen a file only after the data it is lengthened by.
    """
    try:
        earlier = (part / PHOTOGRAPHS).read_bytes().split(b"\n")
        with (part / DATA).open("rb") as file:
            if file.read(HEADER_BYTES) != header(cache_key(digest, layout.dtype, earlier)):
                return 0
            length = file.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return 0
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(earlier, photographs, strict=False))
    return min((length - HEADER_BYTES) // layout.row_bytes, sum(1 for _ in same))


def _make_room(part: Path, key: str, done: int, photographs: Sequence[bytes], layout: Layout) -> None:
    """Cuts the file of features off after the rows that stay, and writes down what the rows will be."""
    needed = (layout.rows - done) * layout.row_bytes
    free = shutil.disk_usage(part).free
    if needed > free:
        raise OSError(f"{needed / 1e9:.2f} GB are missing and {free / 1e9:.2f} GB are free on this disk")
    with (part / DATA).open("r+b" if done else "wb", buffering=0) as file:
        file.truncate(HEADER_BYTES + done * layout.row_bytes if done else 0)
        _write_synced(part / PHOTOGRAPHS, b"\n".join(photographs))
        _write(file, header(key))


def _append(data: Path, batches: Iterator[Tensor], done: int, rows: int, progress: str) -> None:
    """Bring the file at `data` to its full length.

    By plain writes, because a memory map that meets a full disk kills the process (SIGBUS) instead of raising; and
    unbuffered, because a buffer would try again to write what failed while the error is on its way.
    """
    interval = 0.5 if sys.stderr.isatty() else 30
    with (
        data.open("ab", buffering=0) as file,
        tqdm(desc=progress, total=rows, initial=done, unit="image", mininterval=interval) as bar,
    ):
        for features in batches:
            _write(file, features.numpy().tobytes())
            os.fsync(file.fileno())
            bar.update(len(features))


def _write(file: BinaryIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _write_synced(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    with new.open("wb", buffering=0) as file:
        _write(file, content)
        os.fsync(file.fileno())
    new.replace(path)


def _computed(
    backbone: Backbone, paths: Sequence[Path], batch_size: int | None, num_workers: int | None, dtype: Precision
) -> Iterator[Tensor]:
    """Features of `paths` in order, `[B, L, D]` on the CPU, finite."""
    device = backbone.scale.device
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if batch_size is None:
        batch_size = 8 if device.type == "cpu" else 32
    if num_workers is None:
        num_workers = cores if device.type == "cuda" else 2
    first = 0
    for images in decoded(
        paths, backbone.transform, batch_size, min(num_workers, cores), pin_memory=device.type == "cuda"
    ):
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
