"""Build a feature cache in any number of processes, which may be killed and resumed.

B images of C channels in a batch, H rows and W columns of pixels, L context vectors of D features,
R rows of a cache.
"""

import fcntl
import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from captioning.backbones.base import Backbone, Batches, Rows
from captioning.data.dataset import ImageFiles, Inputs
from captioning.data.image_files import fingerprints
from captioning.data.loader import Loader
from captioning.errors import CaptioningError
from captioning.features import cache
from captioning.features.cache import (
    CHECKSUM,
    CHECKSUMS,
    DATA,
    FeatureCache,
    Layout,
    Numbers,
    checksum,
    scale_sample,
    unit_scale,
)
from captioning.files import write_json
from captioning.machine import cpu_count
from captioning.progress import progress_bar

BATCH = 32
SHARD = 8
"""Batches that a process takes at once: seconds of a GPU, and often a minute of a CPU."""


@dataclass
class FeatureStore:
    """The features below a `cache` folder, as `Backbone.open_inputs` asks for them.

    If the features of `whole`, a split, are there, those of a subset of it are not computed. With
    `in_steps` none are: every step computes those of its images.

    A killed build resumes with the next image; so does a build that stopped at a broken image,
    after that image is repaired or removed. Processes that request the same cache, also on several
    machines, build it together.
    """

    cache: Path
    whole: Sequence[Path] = ()
    in_steps: bool = False

    def computed(self, backbone: Backbone, paths: Sequence[Path], name: str) -> Inputs:
        if self.in_steps:
            return UncachedImages(paths, backbone.transform)
        part = len(paths) < len(self.whole)
        row = {path: number for number, path in enumerate(self.whole if part else ())}
        if part and row.keys() >= {*paths}:
            prints = fingerprints(self.whole)
            if (self.folder / cache.cache_key(backbone.digest, prints)).exists():
                batches_from = partial(compute_features, backbone, self.whole)
                split = self.copied(backbone, prints, batches_from, name)
                return split.subset([row[path] for path in paths])
        batches_from = partial(compute_features, backbone, paths)
        return self.copied(backbone, fingerprints(paths), batches_from, name)

    def copied(
        self, backbone: Backbone, fingerprints: Sequence[bytes], batches_from: Batches, name: str
    ) -> FeatureCache:
        return build_rows(backbone, fingerprints, batches_from, self.folder, f"features of {name}")

    @property
    def folder(self) -> Path:
        return self.cache / "features"


@dataclass
class MissingFeatures(FeatureStore):
    """Counts the bytes that are not in the cache yet, in place of computing them."""

    size: int = 0

    def copied(
        self, backbone: Backbone, fingerprints: Sequence[bytes], batches_from: Batches, name: str
    ) -> Any:
        place = Place.of(self.folder, backbone.digest, fingerprints)
        if place.finished.exists():
            return super().copied(backbone, fingerprints, batches_from, name)
        missing = len(fingerprints)
        for part in place.unfinished[:1]:
            stored = np.fromfile(part / CHECKSUMS, CHECKSUM)
            missing -= int(np.count_nonzero(stored[:missing]))
        self.size += backbone.cached_bytes(missing)
        return ImageFiles((), backbone.transform)


class UncachedImages(ImageFiles):
    """Images whose features a frozen backbone computes in every step."""

    def fit_scale(self, backbone: Backbone) -> None:
        """Set the backbone's factor to unit scale, as that of a cache of these images."""
        sample = [self.paths[row] for row in scale_sample(len(self.paths))]
        batches = compute_features(backbone, sample, _batches(range(len(sample)), BATCH))
        rows = (row.numpy() for _, features in batches for row in features.split(1))
        backbone.scale.fill_(unit_scale(rows))


@dataclass(frozen=True)
class Place:
    """Where a cache is once it is finished, and where until then."""

    folder: Path
    first: str
    """key of the first row, by which an unfinished cache is found after a later photograph was
    repaired or removed"""
    key: str

    @classmethod
    def of(cls, folder: Path, digest: str, prints: Sequence[bytes]) -> "Place":
        return cls(folder, cache.cache_key(digest, prints[:1]), cache.cache_key(digest, prints))

    @property
    def finished(self) -> Path:
        return self.folder / self.key

    @property
    def part(self) -> Path:
        return self.folder / f"{self.first}.{self.key}.part"

    @property
    def unfinished(self) -> list[Path]:
        """The folder `part`, if it is there, and others that may have rows of it."""
        found = {file.parent for file in self.folder.glob(f"{self.first}*.part/{CHECKSUMS}")}
        return sorted(found, key=lambda part: (part != self.part, part))

    def lock(self) -> FileLock:
        """Held to begin and to finish; the system releases it even if the process is killed."""
        return FileLock(self.folder / f"{self.first}.lock")


def build_rows(
    backbone: Backbone,
    prints: Sequence[bytes],
    batches_from: Batches,
    folder: Path,
    progress: str,
    batch_size: int = BATCH,
) -> FeatureCache:
    """Build a cache of the rows that `batches_from` makes, together with other processes.

    Batches are `[B, L, D]` in half precision on the CPU; `prints` are the fingerprints of images.
    """
    digest = backbone.digest
    layout = Layout(len(prints), backbone.positions, backbone.dim)
    origins = cache.row_origins(digest, prints)
    place = Place.of(folder, digest, prints)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not place.finished.exists():
            with ExitStack() as opened:
                with place.lock():
                    if place.finished.exists():
                        return FeatureCache(place.finished, layout, origins)
                    files = _join(place, layout, origins)
                    opened.enter_context(closing(files))
                _fill(files, batches_from, folder, progress, batch_size)
                about = {"backbone": backbone.settings, "layout": asdict(layout)}
                with place.lock():
                    if not place.finished.exists():  # by another process meanwhile
                        write_json(place.part / "meta.json", about)
                        place.part.replace(place.finished)
    except OSError as error:
        error.add_note(
            f"cannot write the feature cache {place.part}; its build resumes once there is disk "
            "space"
        )
        raise
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        # reap it, or PyTorch raises again when the next process ends
        multiprocessing.active_children()
        raise CaptioningError(
            "a process that decodes photographs was killed, perhaps because memory ran out "
            f"({error}): free memory (in a container, perhaps shared memory) and run again; the "
            "build will resume"
        ) from error
    return FeatureCache(place.finished, layout, origins)


def _join(place: Place, layout: Layout, origins: Numbers) -> "_Files":
    """Open the unfinished cache, and begin it if no other process has it open."""
    for part in (*place.unfinished, place.part):
        part.mkdir(exist_ok=True)
        files = _Files(part, layout, origins)
        if files.begin() or part == place.part:
            break
        files.close()
    if part != place.part:
        part.replace(place.part)
    files.share()
    return files


def _fill(
    files: "_Files", batches_from: Batches, folder: Path, progress: str, batch_size: int
) -> None:
    """Compute all rows but those that other processes compute, and wait for them."""
    rows, size = range(files.layout.rows), SHARD * batch_size
    unfinished, others = files.stored(rows) == 0, list[range]()
    check_space(int(unfinished.sum()) * files.layout.row_bytes, folder)

    def own() -> Iterator[Rows]:
        for start in rows[::size]:
            shard, todo = rows[start : start + size], list[int]()
            if files.lock(shard):
                todo = files.unfinished(shard)
            else:
                others.append(shard)
            bar.update(int(unfinished[start : start + size].sum()) - len(todo))
            yield from _batches(todo, batch_size)

    done = len(rows) - int(unfinished.sum())
    with progress_bar(progress, len(rows), "image", initial=done) as bar:
        for batch, features in batches_from(own()):
            files.write(batch, features)
            bar.update(len(batch))
    files.unlock()
    if others:
        print(f"waiting for other processes that build the {progress}", file=sys.stderr)
    for shard in others:
        files.lock(shard, wait=True)
        if todo := files.unfinished(shard):  # of a process that was killed
            for batch, features in batches_from(_batches(todo, batch_size)):
                files.write(batch, features)
    files.sync()


def check_space(needed: int, folder: Path) -> None:
    """Refuse to write so many bytes of features where fewer are free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise CaptioningError(
            f"features need {needed / 1e9:.2f} GB more in {folder}, and {free / 1e9:.2f} GB are "
            "free there: free some disk space and run again, choose another folder (cache=FOLDER), "
            "or train without a cache (data.cache_features=false)"
        )


class _Files:
    """The files of an unfinished cache, which any number of processes write.

    A row is finished when its checksum is written, which is 0 until then. A process locks the rows
    that it computes, and the system releases the locks of one that is killed.
    """

    def __init__(self, part: Path, layout: Layout, origins: Numbers):
        names, flags = (DATA, CHECKSUMS), os.O_RDWR | os.O_CREAT
        self._data, self._checksums = (os.open(part / name, flags, 0o666) for name in names)
        self.layout, self._origins, self._start = layout, origins, len(layout.header)

    def close(self) -> None:
        os.close(self._data)
        os.close(self._checksums)

    def begin(self) -> bool:
        """Keep the rows that are valid for this cache, unless another process writes the files."""
        if not _lock(self._data, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 1):
            return False
        rows = range(self.layout.rows)
        os.ftruncate(self._data, min(self._place(len(rows)), os.fstat(self._data).st_size))
        os.ftruncate(self._checksums, len(rows) * CHECKSUM.itemsize)
        _write(self._data, self.layout.header, 0)
        stored = self.stored(rows)
        for row in stored.nonzero()[0].tolist():
            content = os.pread(self._data, self.layout.row_bytes, self._place(row))
            if checksum(content, self._origins[row]) != stored[row]:
                self._note(row, 0)
        return True

    def share(self) -> None:
        """Let other processes of this cache write, and keep those of another one away."""
        _lock(self._data, fcntl.LOCK_SH, 0, 1)

    def stored(self, rows: range) -> Numbers:
        """Their checksums."""
        size = CHECKSUM.itemsize
        content = os.pread(self._checksums, len(rows) * size, rows.start * size)
        return np.frombuffer(content, CHECKSUM)

    def unfinished(self, rows: range) -> list[int]:
        return [row for row, number in zip(rows, self.stored(rows), strict=True) if number == 0]

    def lock(self, rows: range, wait: bool = False) -> bool:
        """Lock rows; tell whether that succeeded, or another process has them."""
        # In both files: of two machines, one might write back its copy of a page with older bytes
        # of the other's rows.
        width, size = self.layout.row_bytes, CHECKSUM.itemsize
        how = fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)
        return _lock(self._data, how, self._place(rows.start), len(rows) * width) and _lock(
            self._checksums, fcntl.LOCK_EX, rows.start * size, len(rows) * size
        )

    def unlock(self) -> None:
        """Unlock all rows."""
        fcntl.lockf(self._data, fcntl.LOCK_UN, 0, self._start)
        fcntl.lockf(self._checksums, fcntl.LOCK_UN)

    def write(self, rows: Rows, features: Tensor) -> None:
        """Finish rows, with features `[B, L, D]`."""
        # Plain writes, because a memory map on a full disk kills the process (SIGBUS) instead of
        # raising; unbuffered, because a buffer would retry the failed write while the error
        # propagates.
        for row, numbers in zip(rows, features.numpy(), strict=True):
            _write(self._data, numbers.tobytes(), self._place(row))
        os.fsync(self._data)
        for row, numbers in zip(rows, features.numpy(), strict=True):
            self._note(row, checksum(numbers, self._origins[row]))

    def sync(self) -> None:
        os.fsync(self._checksums)

    def _place(self, row: int) -> int:
        return self._start + row * self.layout.row_bytes

    def _note(self, row: int, number: int) -> None:
        _write(self._checksums, np.array(number, CHECKSUM).tobytes(), row * CHECKSUM.itemsize)


def _lock(file: int, how: int, start: int, size: int) -> bool:
    """Lock bytes of a file; tell whether that succeeded."""
    try:
        fcntl.lockf(file, how, size, start)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _write(file: int, content: bytes, place: int) -> None:  # may write only part of the content
    view = memoryview(content)
    while view:
        count = os.pwrite(file, view, place)
        view, place = view[count:], place + count


def compute_features(
    backbone: Backbone,
    paths: Sequence[Path],
    batches: Iterable[Rows],
    num_workers: int | None = None,
) -> Iterator[tuple[Rows, Tensor]]:
    """Yield the rows of each batch and their features, `[B, L, D]` on the CPU.

    Existing vectors are finite.

    Args:
        backbone: frozen, on any device.
        paths: of the photographs.
        batches: rows of `paths`; B affects only speed and memory. Some are taken in advance.
        num_workers: decoding processes; 0 decodes in this one. None: one per core if the backbone
            is on a GPU, which is faster than all of them, and 2 if it is on the CPU, which needs
            the cores itself.
    """
    device = backbone.scale.device
    gpu = device.type == "cuda"
    if num_workers is None:
        num_workers = cpu_count() if gpu else 2
    fetch = ImageFiles(paths, backbone.transform).rows
    requested, batches = tee(batches)
    loader = Loader(fetch, sampler=requested, num_workers=num_workers, pin_memory=gpu)
    for images, rows in zip(loader, batches, strict=True):
        with torch.inference_mode():
            features = backbone(images.to(device, non_blocking=True))
            stored = features.half().contiguous().cpu()
        valid = backbone.valid_mask(images)
        numbers = stored if valid is None else stored.masked_fill(~valid[..., None], 0)
        finite = numbers.isfinite().flatten(1).all(1)
        if not finite.all():
            broken = int((~finite).nonzero()[0])
            raise CaptioningError(
                f"features of {paths[rows[broken]]} are too large for half precision: choose "
                "another node or weights"
            )
        yield rows, stored


def _batches(rows: Rows, size: int) -> list[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
