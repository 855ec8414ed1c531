"""Files of features that were computed elsewhere: an array `[L, D]` for each image, found by the image's name.

| path | holds |
|---|---|
| a folder | `NAME.npy`, or `NAME.npz` with one array, or one called `features`, `feat` or `x` |
| `FILE.npz` | an array for each image, called by its name |
| `FILE.npy` | `[R, L, D]`, and beside it `FILE.txt` with R names, one a line |
| `FILE.h5`, `FILE.hdf5` | a data set for each image, called by its name, stored in this file itself |

L context vectors of D features, R images.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from captioning.errors import CaptioningError, quoted

ARRAYS = ("features", "feat", "x")
"""What the features are called in an image's own `.npz`."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class FeatureFiles:
    """Opened features.

    Attributes:
        files: the file that has an image's features, by the image's name.
        read: an image's features by its name, whatever array they are; it may raise anything.
    """

    files: Mapping[str, Path]
    read: Callable[[str], Array]

    def features(self, name: str, dim: int, regions: int) -> Array:
        """Those of one image, `[L, dim]` with L from 1 to `regions`, all finite.

        Raises:
            CaptioningError: they cannot be read, or are something else.
        """
        where = f"the features {quoted(name)} in {self.files[name]}"
        try:
            found = np.asarray(self.read(name))
        except Exception as error:  # readers of damaged files raise what they like
            raise CaptioningError(f"cannot read {where}: {type(error).__name__}: {quoted(error)}") from error
        if found.ndim != 2 or found.dtype.kind not in "fiu":
            raise CaptioningError(f"{where} are {list(found.shape)} of {found.dtype}; they must be numbers [L, {dim}]")
        rows, width = found.shape
        if width != dim:
            raise CaptioningError(f"{where} are [{rows}, {width}], not [L, {dim}]: all have D = backbone.dim={dim}")
        if not 1 <= rows <= regions:
            raise CaptioningError(f"{where} have L = {rows}; it must be from 1 to backbone.regions={regions}")
        if not np.isfinite(found).all():
            raise CaptioningError(f"{where} are not all finite numbers")
        return found


@contextmanager
def opened(path: Path) -> Iterator[FeatureFiles]:
    """The features at `path`.

    Raises:
        CaptioningError: there are none, they cannot be read, or it takes h5py, which is not installed.
    """
    if path.is_dir():
        files = {file.stem: file for file in sorted(path.iterdir()) if file.suffix in (".npy", ".npz")}
        yield FeatureFiles(files, lambda name: _own_array(files[name]))
        return
    kinds = {".npz": _archive, ".npy": _stacked, ".h5": _hdf5, ".hdf5": _hdf5}
    if path.suffix not in kinds or not path.is_file():
        raise CaptioningError(
            f"backbone.path={quoted(path)} is no folder of .npy or .npz files, and no file of {', '.join(kinds)}"
        )
    with ExitStack() as stack:
        try:
            names, read = stack.enter_context(kinds[path.suffix](path))
        except CaptioningError:
            raise
        except Exception as error:  # as above
            reason = f"{type(error).__name__}: {quoted(error)}"
            raise CaptioningError(f"cannot read backbone.path={quoted(path)}: {reason}") from error
        yield FeatureFiles(dict.fromkeys(names, path), read)


Opened = Iterator[tuple[Iterable[str], Callable[[str], Array]]]
"""Names, and what reads the array of one."""


def _own_array(file: Path) -> Array:
    with file.open("rb") as opened, ExitStack() as stack:
        loaded = np.load(opened, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        arrays = stack.enter_context(loaded)
        names = [name for name in ARRAYS if name in arrays.files] or arrays.files
        if len(names) > 1 and names[0] not in ARRAYS:
            raise ValueError(f"it holds {', '.join(names)}, and none is called {' or '.join(ARRAYS)}")
        array: Array = arrays[names[0]]
        return array


@contextmanager
def _archive(path: Path) -> Opened:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        yield arrays.files, arrays.__getitem__


@contextmanager
def _stacked(path: Path) -> Opened:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    names = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    rows = {name.strip(): row for row, name in enumerate(names)}
    if array.ndim != 3 or not len(array) == len(names) == len(rows):
        raise ValueError(
            f"it is {list(array.shape)}, and {path.with_suffix('.txt').name} has {len(names)} names, {len(rows)} "
            "different ones; [R, L, D] needs R different names"
        )
    yield rows, lambda name: array[rows[name]]


@contextmanager
def _hdf5(path: Path) -> Opened:
    try:
        import h5py  # an extra
    except ImportError as error:
        raise CaptioningError(f"{path} needs h5py, which is not installed: pip install 'captioning[hdf5]'") from error

    def read(name: str) -> Array:
        # links are not followed: even one within this file may lead on into another one
        found = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
        if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual:
            raise ValueError("it is no array of this file itself, but a group, or a link or reference elsewhere")
        array: Array = found[()]
        return array

    with h5py.File(path, "r") as file:
        yield list(file), read
