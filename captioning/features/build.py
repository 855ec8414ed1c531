"""Build a feature cache in any number of processes, which may be killed and resumed.

B images of C channels in a batch, H rows and W columns of pixels, L context vectors of D features,
R rows of a cache.
"""

import multiprocessing
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, lockf
from functools import partial
from itertools import tee
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from captioning.backbones.base import Backbone, Batches
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
MEMBERS = range(2**32)[-1:]
"""A row that no cache has: each process that builds one shares a lock of it."""


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
        """A cache of the rows that `batches_from` computes, built together with other processes.

        Batches are `[B, L, D]` in half precision on the CPU.
        """
        digest, folder = backbone.digest, self.folder
        layout = Layout(len(fingerprints), backbone.positions, backbone.dim)
        origins = cache.row_origins(digest, fingerprints)
        finished, part = _folders(digest, fingerprints, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not finished.exists():
                # the system releases it even if the process is killed
                lock = FileLock(part.with_suffix("").with_suffix(".lock"))
                with lock:
                    files = None if finished.exists() else _join(part, layout, origins)
                if files is not None:
                    with closing(files):
                        missing = files.stored(files.all).tolist().count(0)
                        check_space(backbone.cached_bytes(missing), folder)
                        _fill(files, batches_from, f"features of {name}")
                        with lock:
                            if part.exists():  # another process may have finished it
                                about = {"backbone": backbone.settings, "layout": asdict(layout)}
                                write_json(part / "meta.json", about)
                                part.replace(finished)
        except OSError as error:
            error.add_note(
                f"cannot write the feature cache {part}; its build resumes once there is disk space"
            )
            raise
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            # reap it, or PyTorch raises again when the next process ends
            multiprocessing.active_children()
            raise CaptioningError(
                "a process that decodes photographs was killed, perhaps because memory ran out "
                f"({error}): free memory (in a container, perhaps shared memory) and run again; "
                "the build will resume"
            ) from error
        return FeatureCache(finished, layout, origins)

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
        finished, part = _folders(backbone.digest, fingerprints, self.folder)
        if finished.exists():
            return super().copied(backbone, fingerprints, batches_from, name)
        missing = len(fingerprints)
        with suppress(FileNotFoundError):
            stored = np.fromfile(_unfinished(part)[0] / CHECKSUMS, CHECKSUM)
            missing -= int(np.count_nonzero(stored[:missing]))
        self.size += backbone.cached_bytes(missing)
        return ImageFiles((), backbone.transform)


class UncachedImages(ImageFiles):
    """Images whose features a frozen backbone computes in every step."""

    def fit_scale(self, backbone: Backbone) -> None:
        """Set the backbone's factor to unit scale, as that of a cache of these images."""
        sample = [self.paths[row] for row in scale_sample(len(self.paths))]
        batches = compute_features(backbone, sample, _batches(range(len(sample))))
        rows = (row for _, features in batches for row in features.numpy()[:, None])
        backbone.scale.fill_(unit_scale(rows))


def _folders(digest: str, prints: Sequence[bytes], folder: Path) -> tuple[Path, Path]:
    """The folders of a finished cache and of an unfinished one."""
    first, key = (cache.cache_key(digest, part) for part in (prints[:1], prints))
    return folder / key, folder / f"{first}.{key}.part"


def _unfinished(part: Path) -> list[Path]:
    """Folders that may have rows of an unfinished cache, the last of them to be made.

    Those of its first row are found again after a later photograph was repaired or removed.
    """
    found = part.parent.glob(f"{part.name.split('.')[0]}*.part")
    return [*sorted(found, key=part.__ne__), part]


def _join(part: Path, layout: Layout, origins: Numbers) -> "_Files":
    """Open an unfinished cache, begun with the rows of an earlier one that nobody builds."""
    for earlier in _unfinished(part):
        earlier.mkdir(exist_ok=True)
        files = _Files(earlier, layout, origins)
        if files.begin() or earlier == part:
            break
        files.close()
    earlier.rename(part)
    files.lock(MEMBERS, LOCK_SH)
    return files


def _fill(files: "_Files", batches_from: Batches, progress: str) -> None:
    """Compute the batches that no other process computes, and wait for the others."""
    how, batches = LOCK_EX | LOCK_NB, _batches(files.all)

    def own() -> Iterator[range]:
        for rows in batches:
            if 0 in files.stored(rows) and not files.lock(rows, how):
                others.append(rows)
            elif 0 in files.stored(rows):  # nor did another process finish it meanwhile
                yield rows
                continue
            bar.update(len(rows))

    with progress_bar(progress, len(files.all), "image") as bar:
        while batches:
            others = list[range]()
            for rows, features in batches_from(own()):
                files.write(rows, features)
                bar.update(len(rows))
            bar.close()
            # wait for them, and compute what a killed process has left
            how, batches = LOCK_EX, others
    files.complete()


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
        self.all, self._header, self._origins = range(layout.rows), layout.header, origins
        data, checksums = (
            os.open(part / name, os.O_RDWR | os.O_CREAT, 0o666) for name in (DATA, CHECKSUMS)
        )
        self._data = _Records(data, len(self._header), layout.row_bytes)
        self._checksums = _Records(checksums, 0, CHECKSUM.itemsize)

    def close(self) -> None:
        for records in (self._data, self._checksums):
            os.close(records.file)

    def lock(self, rows: range, how: int) -> bool:
        """Lock rows; False: another process has them."""
        try:
            # Both files: two machines would otherwise write back the same page of a shared disk,
            # each with older bytes of the other's rows.
            for records in (self._data, self._checksums):
                place = records.start + records.size * rows.start
                lockf(records.file, how, records.size * len(rows), place)
        except BlockingIOError:
            return False
        return True

    def complete(self) -> None:
        """Leave all rows, and no more, on the disk."""
        os.ftruncate(self._data.file, self._data.start + self._data.size * len(self.all))
        os.fsync(self._checksums.file)

    def begin(self) -> bool:
        """Keep the rows that are whole and of the present photographs, and no others.

        False: other processes write these files.
        """
        if not self.lock(MEMBERS, LOCK_EX | LOCK_NB):
            return False
        os.pwrite(self._data.file, self._header, 0)
        os.ftruncate(self._checksums.file, CHECKSUM.itemsize * len(self.all))
        for row, expected in enumerate(self.stored(self.all).tolist()):
            one = range(row, row + 1)
            if expected and expected != checksum(self._data.read(one), self._origins[row]):
                self._checksums.write(one, bytes(CHECKSUM.itemsize))
        return True

    def stored(self, rows: range) -> Numbers:
        """The checksums of rows."""
        return np.frombuffer(self._checksums.read(rows), CHECKSUM)

    def write(self, rows: range, features: Tensor) -> None:
        """Finish and unlock rows, with their features `[B, L, D]`."""
        numbers = features.numpy()
        self._data.write(rows, numbers.tobytes())
        os.fsync(self._data.file)
        checksums = [*map(checksum, numbers, self._origins[rows])]
        self._checksums.write(rows, np.array(checksums, CHECKSUM).tobytes())
        self.lock(rows, LOCK_UN)


class _Records(NamedTuple):
    """An open file of rows that take `size` bytes each, the first of them at byte `start`."""

    file: int
    start: int
    size: int

    def read(self, rows: range) -> bytes:
        return os.pread(self.file, self.size * len(rows), self.start + self.size * rows.start)

    def write(self, rows: range, content: bytes) -> None:
        # Plain writes, because a memory map on a full disk kills the process (SIGBUS) instead of
        # raising; unbuffered, because a buffer would retry the failed write while the error
        # propagates.
        done, place = 0, self.start + self.size * rows.start
        while done < len(content):  # a call may write only part of it
            done += os.pwrite(self.file, content[done:], place + done)


def compute_features(
    backbone: Backbone,
    paths: Sequence[Path],
    batches: Iterable[range],
    num_workers: int | None = None,
) -> Iterator[tuple[range, Tensor]]:
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
        infinite = (~numbers.isfinite()).nonzero()
        if len(infinite):
            raise CaptioningError(
                f"features of {paths[rows[int(infinite[0, 0])]]} are too large for half precision: "
                "choose another node or weights"
            )
        yield rows, stored


def _batches(rows: range) -> list[range]:
    return [rows[start : start + BATCH] for start in rows[::BATCH]]
