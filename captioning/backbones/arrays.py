"""Files of precomputed features: arrays `[L, D]`, `[h, w, D]` or `[D]` by image name.

| path | contents |
|---|---|
| a folder | `NAME.npy`, or `NAME.npz` with a single array or one of `ARRAYS`; or folders of these |
| `FILE.npz` | an array for each image, keyed by its name |
| `FILE.npy` | `[R, L, D]`, with `FILE.txt` of R names, one per line |
| `FILE.h5`, `FILE.hdf5` | a data set for each image, keyed by its name, or a group with `ARRAYS` |

R images, at most L context vectors of D features.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from captioning.errors import CaptioningError, naming, quoted
from captioning.files import LARGEST_ARRAY, check_size, check_unpacked, open_bounded, read_bytes

ARRAYS = ("features", "feat", "x")
"""Preferred array names in the `.npz` or the group of one image."""
NOT_FINITE = 0x7C00
"""Bits of the exponent in half precision, all set in what is infinite or no number."""
PICKLES = "pickles may hold code and are not read: write numpy.savez('FILE.npz', **{NAME: ARRAY})"

Numbers = np.ndarray
Sample = Literal["none", "even", "first"]
"""Which of more rows than needed are taken: none (they are refused), `evenly_spaced`, the first."""
Opened = Iterator[tuple[Iterable[str], Callable[[str], Numbers]]]
"""Image names, and a function that reads the array of an image."""


def evenly_spaced(rows: int, count: int) -> list[int]:
    """The middle row of each of `count` equal parts of `rows` rows; all rows if no more."""
    if rows <= count:
        return list(range(rows))
    return [(2 * part + 1) * rows // (2 * count) for part in range(count)]


@dataclass(frozen=True)
class FeatureFiles:
    """Features that are opened: the file of each image, and a function that reads its array."""

    files: Mapping[str, Path]
    read: Callable[[str], Numbers]

    def features(self, name: str, dim: int, regions: int, sample: Sample) -> Tensor:
        """Finite features of one image in half precision, `[L, dim]`: a `sample` of the rows, if
        there are more than `regions`.
        """
        with _reading(f"the features {quoted(name)} in {self.files[name]}"):
            array = np.asarray(self.read(name))
            if array.ndim in (1, 3):
                array = array.reshape(-1, array.shape[-1])
            if sample == "even" and array.ndim:
                array = array[evenly_spaced(len(array), regions)]
            if sample == "first" and array.ndim:
                array = array[:regions]
            rows = len(array) if array.ndim == 2 and array.shape[1] == dim else 0
            if not 1 <= rows <= regions or array.dtype.kind not in "fiu":
                advice = (
                    ". backbone.regions=N reads more, and backbone.sample=even or first takes "
                    "regions from more"
                )
                raise ValueError(
                    f"it must be [L, D], L from 1 to {regions}, D = backbone.dim={dim}; it is "
                    f"{list(array.shape)} of {array.dtype}{advice if rows > regions else ''}"
                )
            vectors = torch.from_numpy(np.require(array, requirements="W")).half()
            # twenty times as fast as PyTorch's own test
            if (vectors.numpy().view(np.uint16) & NOT_FINITE).max() == NOT_FINITE:
                if not np.isfinite(array).all():
                    raise ValueError("it has NaN or infinite numbers: compute it again")
                raise ValueError(
                    "it has numbers above 65,504, the most in half precision: divide all features "
                    "by one, as the scale is arbitrary"
                )
            return vectors


@contextmanager
def open_arrays(path: Path, setting: str = "path") -> Iterator[FeatureFiles]:
    """Open a folder or file of features, which `setting` of the backbone names."""
    if path.is_dir():
        files = dict[str, Path]()
        for file in _of_images(path.glob("*")) or _of_images(path.glob("*/*")):
            if files.setdefault(file.stem, file) != file:
                raise CaptioningError(f"{files[file.stem]} and {file} are features of one image")
        yield FeatureFiles(files, lambda name: _own_array(files[name]))
        return
    kinds = {".npz": _archive, ".npy": _stacked, ".h5": _hdf5, ".hdf5": _hdf5}
    with ExitStack() as stack:
        with _reading(f"backbone.{setting}={quoted(path)}"):
            if path.suffix not in kinds or not path.is_file():
                raise ValueError(
                    "it is not a folder of .npy, .npz or .pt files, or a file of "
                    f"{', '.join(kinds)}; {PICKLES}"
                )
            names, read = stack.enter_context(kinds[path.suffix](path))
        yield FeatureFiles(dict.fromkeys(names, path), read)


def _of_images(files: Iterable[Path]) -> list[Path]:
    return sorted(file for file in files if file.suffix in (".npy", ".npz", ".pt"))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    with naming(f"cannot read {what}"):
        try:
            yield
        except ValueError as error:
            if "allow_pickle" in str(error):
                raise ValueError(PICKLES) from error
            raise


def _own_array(file: Path) -> Numbers:
    if file.suffix == ".npz":
        with _archive(file) as (found, read):
            names = [name for name in ARRAYS if name in found] or [*found]
            if len(names) > 1 and names[0] not in ARRAYS:
                raise ValueError(
                    f"it contains {', '.join(names)}, none of which is called {' or '.join(ARRAYS)}"
                )
            return read(names[0])
    with open_bounded(file, LARGEST_ARRAY) as content:
        if file.suffix == ".npy":
            return np.asarray(np.load(content, allow_pickle=False))
        check_unpacked(content)
        tensor = torch.load(content, "cpu", weights_only=True)
        check_size(4 * tensor.numel())  # of which an expanded one stores a few
        return np.asarray(tensor.float())


@contextmanager
def _archive(path: Path) -> Opened:
    with open_bounded(path, math.inf) as file, np.load(file, allow_pickle=False) as arrays:
        for member in arrays.zip.infolist():
            check_size(member.file_size)
        yield arrays.files, arrays.__getitem__


@contextmanager
def _stacked(path: Path) -> Opened:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    names = read_bytes(path.with_suffix(".txt")).decode().splitlines()
    rows = {name.strip(): row for row, name in enumerate(names)}
    if array.ndim != 3 or not len(array) == len(names) == len(rows):
        raise ValueError(
            f"it is {list(array.shape)}, and {path.with_suffix('.txt').name} has {len(names)} "
            f"names, {len(rows)} different ones; [R, L, D] needs R different names"
        )
    yield rows, lambda name: array[rows[name]]


@contextmanager
def _hdf5(path: Path) -> Opened:
    try:
        import h5py  # an extra
    except ImportError as error:
        raise ImportError("h5py is not installed: pip install 'captioning[hdf5]'") from error

    def stored(group: Any, name: str) -> Any:
        # Do not follow links: even a link within this file may lead to another file.
        link = group.id.links.get_info(name.encode())
        return group[name] if link.type == h5py.h5l.TYPE_HARD else None

    def read(name: str) -> Numbers:
        array = stored(file, name)
        if isinstance(array, h5py.Group):
            array = next((stored(array, inner) for inner in ARRAYS if inner in array), None)
        made = array.id.get_create_plist() if isinstance(array, h5py.Dataset) else None
        kinds = h5py.h5d.CHUNKED, h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS  # no virtual one
        if made is None or made.get_external_count() or made.get_layout() not in kinds:
            raise ValueError(
                "it must be an array stored in this file, without links, or a group with one "
                f"called {' or '.join(ARRAYS)}"
            )
        chunk = made.get_chunk() if made.get_layout() == h5py.h5d.CHUNKED else ()
        check_size(max(array.size, math.prod(chunk)) * array.dtype.itemsize)
        filters = h5py.h5z
        used = [made.get_filter(place)[0] for place in range(made.get_nfilters())]
        # of the others the content is as long as before
        packers = [x for x in used if x not in (filters.FILTER_SHUFFLE, filters.FILTER_FLETCHER32)]
        if packers not in ([], [filters.FILTER_DEFLATE], [filters.FILTER_LZF]):
            raise ValueError("it may be compressed once, by gzip or lzf")
        if packers:  # HDF5 unpacks all of a chunk, at most 1,032 bytes of each, whatever its shape
            array.id.chunk_iter(lambda chunk: check_size(1032 * chunk.size))
        return np.asarray(array[()])

    with h5py.File(path, "r") as file:
        yield list(file), read
