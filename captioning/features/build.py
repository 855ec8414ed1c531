"""Building a feature cache: once, by one process, going on where a killed build ended.

B images in a batch, L context vectors of D features.
"""

import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, get_args

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from captioning.backbones.base import Backbone
from captioning.data.photographs import fingerprints
from captioning.errors import CaptioningError
from captioning.features.cache import (
    CHECKSUM,
    CHECKSUMS,
    DATA,
    FeatureCache,
    Layout,
    Precision,
    cache_key,
    checksum,
    row_origins,
)
from captioning.features.copied import file_digests, known_rows, with_computed, write_files
from captioning.features.decoded import decoded
from captioning.files import write_json
from captioning.progress import counter


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

    What another finished cache below `folder` has of the same files is copied. Other images are decoded in worker
    processes while the backbone, on the device where it lies, computes. Features are appended to a file with a checksum
    for each row that is done, so a build that was killed goes on with the next image, and so does one that stopped at a
    broken image, once that is mended or left out. The finished folder appears under its name at once. Of several
    processes that ask for the same cache one builds and the others wait.

    Args:
        backbone: a frozen backbone.
        paths: the photographs.
        folder: where caches lie; made if absent.
        batch_size: B, which changes nothing but speed and memory. None: 32 on a GPU, and 8 on a CPU, where VGG-11
            takes a fifth less time for an image than in batches of 32, which leave its caches.
        num_workers: decoding processes; 0 decodes in this one. None: as many as there are cores for a backbone on a
            GPU, which is faster than all of them, and 2 for one on the CPU, which needs the cores itself.
        dtype: precision on disk.
        progress: the text before what is counted on standard error.

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
    files = file_digests(backbone.digest, dtype, paths, photographs)

    def rows(done: int) -> Iterator[Tensor]:
        known = known_rows(folder, files[done:], layout_of(backbone, len(paths), dtype))
        missing = [path for path, row in zip(paths[done:], known, strict=True) if row is None]
        return with_computed(known, _computed(backbone, missing, batch_size, num_workers, dtype))

    try:
        return build_rows(backbone, photographs, rows, folder, dtype, progress, files)
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        multiprocessing.active_children()  # takes note of its end, or PyTorch raises again when the next process ends
        raise CaptioningError(
            f"a process that decodes photographs was killed, most likely for want of memory ({error}): free memory, or "
            "shared memory where a container limits it, and the build goes on where it ended"
        ) from error


def build_rows(
    backbone: Backbone,
    photographs: Sequence[bytes],
    batches_from: Callable[[int], Iterator[Tensor]],
    folder: Path,
    dtype: Precision,
    progress: str,
    files: Sequence[bytes] | None = None,
) -> FeatureCache:
    """The cache of rows that `batches_from(done)` gives from row `done` on, as `[B, L, D]` in `dtype` on the CPU.

    Args:
        backbone: whose features they are.
        photographs: what tells each row's photograph from others.
        batches_from: called where there is something to do.
        folder: where caches lie.
        dtype: precision on disk.
        progress: the text before what is counted on standard error.
        files: `file_digests`, for other caches to copy rows; None: they do not.

    Raises:
        CaptioningError: the disk is full, or the folder cannot be written to.
    """
    digest = backbone.digest
    key = cache_key(digest, dtype, photographs)
    layout = layout_of(backbone, len(photographs), dtype)
    origins = row_origins(digest, dtype, photographs)
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
                    done = _finished_rows(part, layout, origins)
                    _make_room(part, layout, done)
                    _append(part, batches_from(done), layout, origins, done, progress)
                    if files is not None:
                        write_files(part, files, origins)
                    meta = {"backbone": backbone.settings, "layout": asdict(layout)}
                    write_json(part / "meta.json", meta)
                    part.replace(finished)
    except OSError as error:
        raise CaptioningError(
            f"cannot write the feature cache {part}: {error.strerror or error}. It needs "
            f"{layout.total_bytes / 1e9:.2f} GB in all; make room, and the build goes on where it ended, or choose "
            "another folder"
        ) from error
    return FeatureCache(finished, layout, origins)


def layout_of(backbone: Backbone, rows: int, dtype: Precision) -> Layout:
    """Of a cache of so many photographs' features."""
    return Layout(rows, backbone.grid[0] * backbone.grid[1], backbone.dim, backbone.grid, dtype)


def _only_process(path: Path) -> AbstractContextManager[object]:
    """Holds a lock, which the system releases however the process ends."""
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        print(f"waiting for the process that builds {path.with_suffix('')}", file=sys.stderr)
        return lock.acquire()


def _finished_rows(part: Path, layout: Layout, origins: np.ndarray[Any, Any]) -> int:
    """How many rows of an earlier build are rows of this one: those up to the first with another checksum."""
    try:
        checksums = np.fromfile(part / CHECKSUMS, CHECKSUM)
        with (part / DATA).open("rb") as file:
            file.seek(len(layout.header))
            for row, (origin, expected) in enumerate(zip(origins, checksums, strict=False)):
                if checksum(file.read(layout.row_bytes), origin) != expected:
                    return row
    except FileNotFoundError:
        return 0
    return min(len(origins), len(checksums))


def _make_room(part: Path, layout: Layout, done: int) -> None:
    """Cut both files off after the rows that stay, and say how many there will be."""
    needed = (layout.rows - done) * layout.row_bytes
    free = shutil.disk_usage(part).free
    if needed > free:
        raise OSError(f"{needed / 1e9:.2f} GB are missing and {free / 1e9:.2f} GB are free on this disk")
    with (part / DATA).open("r+b" if done else "wb", buffering=0) as file:
        file.truncate(len(layout.header) + done * layout.row_bytes if done else 0)
        _write(file, layout.header)
    with (part / CHECKSUMS).open("ab") as file:
        file.truncate(done * CHECKSUM.itemsize)


def _append(
    part: Path, batches: Iterator[Tensor], layout: Layout, origins: np.ndarray[Any, Any], done: int, progress: str
) -> None:
    """Bring both files in `part` to their full length; a row is finished when its checksum is written.

    By plain writes, because a memory map that meets a full disk kills the process (SIGBUS) instead of raising; and
    unbuffered, because a buffer would try again to write what failed while the error is on its way.
    """
    with (
        (part / DATA).open("ab", buffering=0) as data,
        (part / CHECKSUMS).open("ab", buffering=0) as checksums,
        # whichever process builds, it is the only one
        counter(progress, layout.rows, "image", initial=done, disable=False) as bar,
    ):
        for features in batches:
            rows = features.numpy()
            _write(data, rows.tobytes())
            os.fsync(data.fileno())
            made_of = origins[done : done + len(rows)]
            numbers = [checksum(row.data, origin) for row, origin in zip(rows, made_of, strict=True)]
            _write(checksums, np.array(numbers, CHECKSUM).tobytes())
            done += len(rows)
            bar.update(len(rows))
        os.fsync(checksums.fileno())


def _write(file: BinaryIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _computed(
    backbone: Backbone, paths: Sequence[Path], batch_size: int | None, num_workers: int | None, dtype: Precision
) -> Iterator[Tensor]:
    """Features of `paths` in order, `[B, L, D]` on the CPU, finite where there are any."""
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
        present = backbone.present(images)
        numbers = stored if present is None else stored.masked_fill(~present[..., None], 0)
        finite = numbers.isfinite().flatten(1).all(1)
        if not finite.all():
            broken = int((~finite).nonzero()[0])
            largest = (features[broken] if present is None else features[broken, present[broken]]).abs().max().item()
            raise CaptioningError(
                f"the largest feature of {paths[first + broken]} is {largest:.4g}, which {dtype} cannot hold: "
                "choose float32 for the cache, or another node or weights if it is infinite or not a number"
            )
        first += len(stored)
        yield stored
