"""Memory-mapped features of a data set from a frozen backbone, read by any number of processes.

R rows (one per photograph), B rows in a batch, L context vectors of D features. Missing vectors are
NaN in all of D.

A finished cache is the folder `<key>` with `features.npy`, `[R, L, D]` in NumPy's format;
`checksums`, 32 bits per row; and `meta.json`, a description for human readers.
"""

import copy
import hashlib
import io
import math
import mmap
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioning.backbones.base import Backbone
from captioning.errors import CaptioningError

DATA = "features.npy"
CHECKSUMS = "checksums"
CHECKSUM = np.dtype("<u4")
checksum = zlib.crc32
"""Of a row's bytes, from its origin on; it detects any error burst of up to 32 bits."""
SCALE_SAMPLE = 512

PRECISION = np.dtype("float16")
Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """Shape of a cache: R, L, D."""

    rows: int
    positions: int
    dim: int

    @property
    def header(self) -> bytes:
        """NumPy's header; its length does not depend on R, so that a resumed build may change R."""
        file = io.BytesIO()
        shape = self.rows, self.positions, self.dim
        about = {"descr": PRECISION.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, about)
        return file.getvalue()

    @property
    def row_bytes(self) -> int:
        return self.positions * self.dim * PRECISION.itemsize


def cache_key(backbone_digest: str, prints: Sequence[bytes]) -> str:
    """Digest of all that determines a cache and its order, 32 hexadecimal digits."""
    sha = hashlib.sha256(f"format 2 {backbone_digest} {PRECISION}\n".encode())
    for one in prints:
        sha.update(one + b"\n")
    return sha.hexdigest()[:32]


def row_origins(backbone_digest: str, prints: Sequence[bytes]) -> Numbers:
    """Initial values `[R]` of the rows' checksums, derived from their sources."""
    # A row from another cache or of an earlier photograph thus fails its check, even if its bytes
    # are intact.
    start = zlib.crc32(f"{backbone_digest} {PRECISION}\n".encode())
    return np.array([zlib.crc32(one, start) for one in prints], CHECKSUM)


def scale_sample(count: int) -> Numbers:
    """The rows of `count` that give the scale: at most 512, evenly spaced."""
    return np.linspace(0, count - 1, min(count, SCALE_SAMPLE)).round().astype(np.int64)


def unit_scale(rows: Iterable[Numbers]) -> float:
    """1 / root mean square of features, each row `[1, L, D]` with equal weight."""
    squares = [np.nanmean(np.square(row, dtype=np.float64)) for row in rows]
    if not any(squares):
        raise CaptioningError(
            "all features of the training images are 0: check backbone.node and backbone.weights"
        )
    return 1 / math.sqrt(np.mean(squares))


class FeatureCache:
    """Read access to the finished cache in `folder`, given its `layout` and `row_origins`.

    A row is checked when it is first read, by whichever process of a data loader reads it.
    """

    def __init__(self, folder: Path, layout: Layout, origins: Numbers):
        self.folder, self.layout, self._origins = folder, layout, origins
        self._rows = np.arange(layout.rows)
        self._checked = self._none_checked()
        self._opened: tuple[Numbers, Numbers] | None = None
        self._files()

    def subset(self, rows: Sequence[int]) -> "FeatureCache":
        """These rows alone, of the same files."""
        part = copy.copy(self)
        part._rows = np.array(rows)
        return part

    def _files(self) -> tuple[Numbers, Numbers]:
        """The memory map `[R, L, D]` and the checksums `[R]`, opened once per process."""
        if self._opened is None:
            data, header, count = self.folder / DATA, self.layout.header, self.layout.rows
            expected = len(header) + count * self.layout.row_bytes
            try:
                with data.open("rb") as file:
                    intact = file.read(len(header)) == header
                checksums = np.fromfile(self.folder / CHECKSUMS, CHECKSUM)
                size = data.stat().st_size
                if not intact or size != expected or len(checksums) != count:
                    raise ValueError("its files are truncated or have another shape")
                rows = np.lib.format.open_memmap(data, mode="r").view(np.ndarray)
            except (OSError, ValueError) as error:
                raise CaptioningError(
                    f"the feature cache {self.folder} cannot be read ({error}): delete the folder "
                    "to build it again"
                ) from error
            self._opened = rows, checksums
        return self._opened

    def _none_checked(self) -> Numbers:
        """Flags `[R]` that forked processes share.

        One's check spares the others theirs.
        """
        return np.frombuffer(mmap.mmap(-1, max(1, self.layout.rows)), np.bool_)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Unscaled copies of photographs' features in the cache's precision, `[B, L, D]`."""
        rows, checksums = self._files()
        numbers = self._rows[np.asarray(indices, np.int64)]
        read = rows[numbers]
        for position in (~self._checked[numbers]).nonzero()[0]:
            index = numbers[position]
            if checksum(read[position].data, self._origins[index]) != checksums[index]:
                raise CaptioningError(
                    f"{self.folder / DATA} is damaged at photograph {index}: delete {self.folder} "
                    "to build it again"
                )
            self._checked[index] = True
        return torch.from_numpy(read)

    def scale(self) -> float:
        """Factor to unit scale: 1 / root mean square of the features.

        One number for all D, so that the features keep their proportions; photographs have equal
        weight, regardless of their numbers of vectors. It is measured to well below 1 % on at most
        512 rows, evenly spaced.
        """
        return unit_scale(self.rows([row]).numpy() for row in scale_sample(len(self)))

    def fit_scale(self, backbone: Backbone) -> None:
        """Set the backbone's factor to unit scale, with these as training features."""
        backbone.scale.fill_(self.scale())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None, "_checked": self._none_checked()}
