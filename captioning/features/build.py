"""Build a feature cache in one process; a killed build resumes.

B images of C channels in a batch, H rows and W columns of pixels, L context vectors of D features.
"""

import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from filelock import FileLock, Timeout
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


@dataclass
class FeatureStore:
    """The features below a `cache` folder, as `Backbone.open_inputs` asks for them.

    If the features of `whole`, a split, are there, those of a subset of it are not computed. With
    `in_steps` none are: every step computes those of its images.

    A killed build resumes with the next image; so does a build that stopped at a broken image,
    after that image is repaired or removed. If several processes request the same cache, one builds
    it and the others wait.
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
        finished, part = _folders(backbone.digest, fingerprints, self.folder)
        if finished.exists():
            return super().copied(backbone, fingerprints, batches_from, name)
        self.size += backbone.cached_bytes(len(fingerprints))
        with suppress(FileNotFoundError):
            self.size -= (part / DATA).stat().st_size
        return ImageFiles((), backbone.transform)


class UncachedImages(ImageFiles):
    """Images whose features a frozen backbone computes in every step."""

    def fit_scale(self, backbone: Backbone) -> None:
        """Set the backbone's factor to unit scale, as that of a cache of these images."""
        sample = [self.paths[row] for row in scale_sample(len(self.paths))]
        batches = compute_features(backbone, sample)
        rows = (row.numpy() for features in batches for row in features.split(1))
        backbone.scale.fill_(unit_scale(rows))


def build_rows(
    backbone: Backbone,
    prints: Sequence[bytes],
    batches_from: Batches,
    folder: Path,
    progress: str,
) -> FeatureCache:
    """Build a cache of the rows that `batches_from(done)` yields, starting at row `done`.

    Batches are `[B, L, D]` in half precision on the CPU; `prints` are the fingerprints of images.
    """
    digest = backbone.digest
    layout = Layout(len(prints), backbone.positions, backbone.dim)
    origins = cache.row_origins(digest, prints)
    finished, part = _folders(digest, prints, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not finished.exists():
            with _only_process(part.with_suffix(".lock")):
                if not finished.exists():
                    part.mkdir(exist_ok=True)
                    done = _resume(part, layout, origins)
                    _append(part, batches_from(done), layout, origins, done, progress)
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
            f"({error}): free memory (in a container, perhaps shared memory) and run again; the "
            "build will resume"
        ) from error
    return FeatureCache(finished, layout, origins)


def _folders(digest: str, prints: Sequence[bytes], folder: Path) -> tuple[Path, Path]:
    """The folders of a finished cache and of an unfinished one."""
    # An unfinished cache is named after its first row alone, so that it is found again after a
    # later photograph was repaired or removed.
    part = folder / f"{cache.cache_key(digest, prints[:1])}.part"
    return folder / cache.cache_key(digest, prints), part


def check_space(needed: int, folder: Path) -> None:
    """Refuse to write so many bytes of features where fewer are free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise CaptioningError(
            f"features need {needed / 1e9:.2f} GB more in {folder}, and {free / 1e9:.2f} GB are "
            "free there: free some disk space and run again, choose another folder (cache=FOLDER), "
            "or train without a cache (data.cache_features=false)"
        )


def _only_process(path: Path) -> AbstractContextManager[object]:
    lock = FileLock(path)  # the system releases it even if the process is killed
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        print(f"waiting for the process that builds {path.with_suffix('')}", file=sys.stderr)
        return lock.acquire()


def _resume(part: Path, layout: Layout, origins: Numbers) -> int:
    """Truncate both files to the rows of an earlier build that are kept; return their number."""
    done = 0
    with suppress(FileNotFoundError), (part / DATA).open("rb") as file:
        file.seek(len(layout.header))
        for origin, expected in zip(origins, np.fromfile(part / CHECKSUMS, CHECKSUM), strict=False):
            if checksum(file.read(layout.row_bytes), origin) != expected:
                break
            done += 1
    check_space((layout.rows - done) * layout.row_bytes, part)
    with (part / DATA).open("r+b" if done else "wb", buffering=0) as file:
        file.truncate(len(layout.header) + done * layout.row_bytes if done else 0)
        _write(file, layout.header)
    with (part / CHECKSUMS).open("ab") as file:
        file.truncate(done * CHECKSUM.itemsize)
    return done


def _append(
    part: Path,
    batches: Iterator[Tensor],
    layout: Layout,
    origins: Numbers,
    done: int,
    progress: str,
) -> None:
    """Append the remaining rows to both files in `part`.

    A row is finished when its checksum is written.
    """
    # Plain writes, because a memory map on a full disk kills the process (SIGBUS) instead of
    # raising; unbuffered, because a buffer would retry the failed write while the error propagates.
    with (
        (part / DATA).open("ab", buffering=0) as data,
        (part / CHECKSUMS).open("ab", buffering=0) as checksums,
        # Any rank may be the one that builds.
        progress_bar(progress, layout.rows, "image", initial=done, disable=False) as bar,
    ):
        for features in batches:
            rows = features.numpy()
            _write(data, rows.tobytes())
            os.fsync(data.fileno())
            numbers = [*map(checksum, rows, origins[done : done + len(rows)])]
            _write(checksums, np.array(numbers, CHECKSUM).tobytes())
            done += len(rows)
            bar.update(len(rows))
        os.fsync(checksums.fileno())


def _write(file: BinaryIO, content: bytes) -> None:  # a raw file may write only part of the content
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def compute_features(
    backbone: Backbone,
    paths: Sequence[Path],
    first: int = 0,
    batch_size: int = 32,
    num_workers: int | None = None,
) -> Iterator[Tensor]:
    """Yield the features of `paths[first:]` in order, `[B, L, D]` on the CPU.

    Existing vectors are finite.

    Args:
        backbone: frozen, on any device.
        paths: of the photographs.
        first: row to begin at.
        batch_size: B, which affects only speed and memory.
        num_workers: decoding processes; 0 decodes in this one. None: one per core if the backbone
            is on a GPU, which is faster than all of them, and 2 if it is on the CPU, which needs
            the cores itself.
    """
    device = backbone.scale.device
    gpu = device.type == "cuda"
    if num_workers is None:
        num_workers = cpu_count() if gpu else 2
    rows = range(len(paths))
    batches = [rows[start : start + batch_size] for start in rows[first::batch_size]]
    fetch = ImageFiles(paths, backbone.transform).rows
    for images in Loader(fetch, sampler=batches, num_workers=num_workers, pin_memory=gpu):
        with torch.inference_mode():
            features = backbone(images.to(device, non_blocking=True))
            stored = features.half().contiguous().cpu()
        valid = backbone.valid_mask(images)
        numbers = stored if valid is None else stored.masked_fill(~valid[..., None], 0)
        finite = numbers.isfinite().flatten(1).all(1)
        if not finite.all():
            broken = int((~finite).nonzero()[0])
            raise CaptioningError(
                f"features of {paths[first + broken]} are too large for half precision: choose "
                "another node or weights"
            )
        first += len(stored)
        yield stored
