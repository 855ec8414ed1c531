"""A frozen backbone's features of a data set on disk: opened as a memory map, read by any number of processes.

R rows (one per photograph), B of them in a batch, L context vectors of D features.

A finished cache is the folder `<key>` with `features.bin`, a header of 64 bytes that repeats the key followed by
`[R, L, D]` numbers in native order; `photographs`, the fingerprints of the rows (see `fingerprints`); and `meta.json`,
which says what the numbers are.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from captioning.errors import CaptioningError

DATA = "features.bin"
META = "meta.json"
PHOTOGRAPHS = "photographs"
HEADER_BYTES = 64
SCALE_SAMPLE = 512

Precision = Literal["float16", "float32"]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the bytes of a cache mean: R, L, D, the grid (h, w) and the type of a number."""

    rows: int
    positions: int
    dim: int
    grid: tuple[int, int]
    dtype: Precision

    @property
    def row_bytes(self) -> int:
        """Bytes of one photograph's features."""
        return self.positions * self.dim * np.dtype(self.dtype).itemsize

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole file, header included."""
        return HEADER_BYTES + self.rows * self.row_bytes


def header(key: str) -> bytes:
    """The first bytes of the file of features: it can be told from another cache's even when the sizes agree."""
    return f"captioning features {key}\n".encode().ljust(HEADER_BYTES, b" ")


class FeatureCache:
    """Read access to a finished cache; made by `build_features`.

    Pickling carries the path only, and the file is mapped at the first read, so that every worker has its own map.

    Attributes:
        folder: the cache's own folder.
        key: digest of backbone, photographs and precision, and the folder's name.
        layout: rows, positions, dimension, grid and type.
    """

    def __init__(self, folder: Path, key: str) -> None:
        """Open the cache `key` below `folder`.

        Raises:
            CaptioningError: there is none, or its files are cut short or belong to another cache.
        """
        self.folder = folder / key
        self.key = key
        self.layout = self._verified_layout()
        self._map: np.ndarray[Any, Any] | None = None

    def _verified_layout(self) -> Layout:
        data = self.folder / DATA
        try:
            meta = json.loads((self.folder / META).read_bytes())
            layout = Layout(**{**meta["layout"], "grid": tuple(meta["layout"]["grid"])})
            with data.open("rb") as file:
                first = file.read(HEADER_BYTES)
            size = data.stat().st_size
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CaptioningError(
                f"{self.folder} is no feature cache that can be read ({type(error).__name__}: {error}); "
                "delete the folder to build it again"
            ) from error
        if meta.get("key") != self.key or first != header(self.key):
            raise CaptioningError(f"{data} belongs to another feature cache; delete {self.folder} to build it again")
        if size != layout.total_bytes:
            raise CaptioningError(
                f"{data} has {size} bytes instead of {layout.total_bytes}; delete {self.folder} to build it again"
            )
        return layout

    @property
    def _rows(self) -> np.ndarray[Any, Any]:
        if self._map is None:
            shape = (self.layout.rows, self.layout.positions, self.layout.dim)
            mapped = np.memmap(self.folder / DATA, self.layout.dtype, "r", HEADER_BYTES, shape)
            self._map = mapped.view(np.ndarray)
        return self._map

    def __len__(self) -> int:
        """R."""
        return self.layout.rows

    def __getitem__(self, row: int) -> np.ndarray[Any, Any]:
        """Features of one photograph, `[L, D]` in the cache's precision; an unscaled copy."""
        return np.array(self._rows[row])

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Features of several photographs in the order given, `[B, L, D]` in the cache's precision; unscaled copies."""
        return torch.from_numpy(self._rows[np.asarray(indices, dtype=np.int64)])

    def scale(self, train_rows: Sequence[int] | slice = slice(None)) -> float:
        """The number that brings the features to unit scale: 1 / their root mean square over the training rows.

        One number for all of D, so that the features keep their proportions. At most 512 photographs, evenly spaced
        among `train_rows`, are read: their numbers estimate the root mean square to well below a per cent.

        Raises:
            CaptioningError: no rows, or all features are zero.
        """
        rows = np.arange(len(self))[train_rows if isinstance(train_rows, slice) else np.asarray(train_rows, np.int64)]
        if not len(rows):
            raise CaptioningError("the scale of features is measured on training photographs, and there are none")
        sample = rows[np.linspace(0, len(rows) - 1, min(len(rows), SCALE_SAMPLE)).round().astype(np.int64)]
        squares = [np.square(self._rows[row], dtype=np.float64).mean() for row in sample]
        mean_square = float(np.mean(squares))
        if mean_square == 0:
            raise CaptioningError(
                "all features of the training photographs are 0; check the backbone's node and weights"
            )
        return 1 / math.sqrt(mean_square)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder.parent, self.key)


def fingerprints(paths: Sequence[Path]) -> list[bytes]:
    """What a photograph stands with in a key: its path below the photographs' common folder, its size and its time.

    Reading every byte of a large data set at each start would take minutes, and a changed file that keeps all three
    does not come about by accident. A data set may move as a whole; one copied without its times of modification is
    computed again.

    Raises:
        CaptioningError: a photograph does not exist.
    """
    paths = [path.absolute() for path in paths]
    folder = Path(*_common_parts(paths))
    found = []
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise CaptioningError(f"cannot read the image {path}: {error.strerror}") from error
        name = os.fsencode(path.relative_to(folder).as_posix())
        found.append(b"%s\0%d\0%d" % (name, status.st_size, status.st_mtime_ns))
    return found


def cache_key(backbone_digest: str, dtype: Precision, photographs: Sequence[bytes]) -> str:
    """Digest (32 hexadecimal digits) of all that decides a cache's content, and of the order of its rows."""
    sha = hashlib.sha256(f"{backbone_digest} {dtype}\n".encode())
    for photograph in photographs:
        sha.update(photograph + b"\n")
    return sha.hexdigest()[:32]


def _common_parts(paths: Sequence[Path]) -> list[str]:
    parents = {path.parent.parts for path in paths}
    common = []
    for parts in zip(*parents, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return common


def describe(key: str, layout: Layout, backbone: str) -> str:
    """The content of `meta.json`."""
    return json.dumps({"key": key, "backbone": backbone, "layout": asdict(layout)}, indent=2) + "\n"
