"""Inputs of a split: images, cached features of a backbone, or precomputed ones, copied into a
cache; frames of clips.

Precomputed features are arrays `[L, D]` by image name:

| path | contents |
|---|---|
| a folder | `NAME.npy`, or `NAME.npz` with a single array or one called `features`, `feat` or `x` |
| `FILE.npz` | an array for each image, keyed by its name |
| `FILE.npy` | `[R, L, D]`, with `FILE.txt` of R names, one per line |
| `FILE.h5`, `FILE.hdf5` | a data set for each image, keyed by its name, stored in this file |

B images in a batch, R images, at most L context vectors of D features, at most K frames of a clip.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioning.backbones.base import Backbone
from captioning.backbones.frames import Frames, frames_of
from captioning.backbones.precomputed import Precomputed, spread
from captioning.backbones.side_by_side import SideBySide
from captioning.backbones.words import Words
from captioning.data.dataset import Inputs, Photographs
from captioning.data.example import Example, Splits
from captioning.data.photographs import fingerprints
from captioning.errors import CaptioningError, listed, quoted
from captioning.features.build import build_features, build_rows, layout_of
from captioning.features.cache import FeatureCache, Numbers
from captioning.features.sources import Sources
from captioning.files import LARGEST, open_bounded, read_arrays, read_bytes

BATCH = 32
SAMPLE = 64  # photographs that give the scale of a pretrained network which is trained further
ARRAYS = ("features", "feat", "x")
"""Preferred array names in the `.npz` of one image."""

Opened = Iterator[tuple[Iterable[str], Callable[[str], Numbers]]]
"""Image names, and a function that reads the array of an image."""


class Joined:
    """Features of a frozen `SideBySide`, with a separate cache for each member."""

    pixels = False

    def __init__(self, backbone: SideBySide, parts: Sequence[Inputs]) -> None:
        self.parts, self._axis = parts, backbone.axis

    def rows(self, indices: Sequence[int]) -> Tensor:
        return torch.cat([part.rows(indices) for part in self.parts], dim=self._axis)


class Clips:
    """Features of the frames of clips, `[B, K, D]`, from a cache with a row for each different
    frame.
    """

    pixels = False

    def __init__(
        self, examples: Sequence[Example], backbone: Frames, folder: Path, progress: str
    ) -> None:
        clips = [frames_of(example.path, backbone.grid[1]) for example in examples]
        rows = {frame: row for row, frame in enumerate(dict.fromkeys(chain.from_iterable(clips)))}
        self.places = np.full((len(clips), backbone.grid[1]), -1)  # -1: the clip is shorter
        for places, clip in zip(self.places, clips, strict=True):
            places[: len(clip)] = [rows[frame] for frame in clip]
        self.frames = build_features(backbone.frame, list(rows), folder, progress=progress)

    def rows(self, indices: Sequence[int]) -> Tensor:
        places = self.places[indices]
        found = self.frames.rows(places.ravel().tolist()).unflatten(0, places.shape).squeeze(2)
        return found.masked_fill(torch.from_numpy(places < 0)[..., None], torch.nan)

    def scale(self) -> float:
        return self.frames.scale()


def inputs_of(examples: Sequence[Example], backbone: Backbone, cache: Path, name: str) -> Inputs:
    """Photographs or sentences for a trainable backbone, or features of a frozen one, computed
    unless cached.
    """
    paths = [example.path for example in examples]
    if isinstance(backbone, Words):
        return Sources(examples, backbone)
    if backbone.trainable:
        return Photographs(paths, backbone.transform)
    if isinstance(backbone, SideBySide):
        return Joined(
            backbone, [inputs_of(examples, member, cache, name) for member in backbone.members]
        )
    folder, progress = cache / "features", f"features of {name}"
    if isinstance(backbone, Precomputed):
        return own_features(examples, backbone, folder, progress)
    if isinstance(backbone, Frames):
        return Clips(examples, backbone, folder, progress)
    return build_features(backbone, paths, folder, progress=progress)


def cached_bytes(images: int, backbone: Backbone) -> int:
    """Disk space of the cached features of `images` photographs; 0 for a trainable backbone."""
    if backbone.trainable:
        return 0
    if isinstance(backbone, SideBySide):
        return sum(cached_bytes(images, member) for member in backbone.members)
    return layout_of(backbone, images, "float16").total_bytes


def to_unit_scale(backbone: Backbone, train: Inputs) -> None:
    """Set a backbone's scale from the training features; random weights that will be trained keep
    theirs.
    """
    if isinstance(train, FeatureCache | Clips):
        backbone.scale.fill_(train.scale())
    elif isinstance(train, Photographs):
        members = backbone.members if isinstance(backbone, SideBySide) else [backbone]
        if known := [member for member in members if member.pretrained]:
            indices = np.linspace(0, len(train.paths) - 1, SAMPLE).round().astype(np.int64).tolist()
            images = train.rows(indices).to(backbone.scale.device)
            for member in known:
                with torch.no_grad():
                    member.scale.fill_(1 / member(images).square().nanmean().sqrt())
    elif isinstance(train, Joined) and isinstance(backbone, SideBySide):
        for member, part in zip(backbone.members, train.parts, strict=True):
            to_unit_scale(member, part)


def check_features(splits: Splits, backbone: Backbone) -> None:
    """Check that every image has the precomputed features or frames that `backbone` or a member of
    it reads.
    """
    examples = [example for examples in splits.values() for example in examples]
    if any(isinstance(module, Frames) for module in backbone.modules()):
        for example in examples:
            frames_of(example.path, 1)
    for member in _members(backbone):
        with opened(member.path) as features:
            _names(examples, member, features.files)


def move_features(backbones: Sequence[Backbone], path: Path) -> None:
    """Point the precomputed members of `backbones` to `path`."""
    members = [member for backbone in backbones for member in _members(backbone)]
    paths = list(dict.fromkeys(quoted(member.path) for member in members))
    if len(paths) != 1:
        found = (
            f"are read from {', '.join(paths)}: put them there again"
            if paths
            else "are not read by this checkpoint"
        )
        raise CaptioningError(
            f"features must replace a single path of precomputed features, but they {found}"
        )
    for member in members:
        member.path = path


def own_features(
    examples: Sequence[Example], backbone: Precomputed, folder: Path, progress: str
) -> FeatureCache:
    """The features of `examples` in order, read from their files unless cached below `folder`."""
    regions = backbone.grid[1]
    with opened(backbone.path) as features:
        names = _names(examples, backbone, features.files)
        files = list(dict.fromkeys(features.files[name] for name in names))
        known = dict(zip(files, fingerprints(files), strict=True))

        def batches_from(done: int) -> Iterator[Tensor]:
            for first in range(done, len(names), BATCH):
                batch = names[first : first + BATCH]
                # missing vectors are NaN, as in `captioning.backbones.context`
                rows = torch.full(
                    (len(batch), regions, backbone.dim), torch.nan, dtype=torch.float16
                )
                for row, name in zip(rows, batch, strict=True):
                    vectors = features.features(
                        name, backbone.dim, regions, backbone.sample == "even"
                    )
                    row[: len(vectors)] = vectors
                yield rows

        photographs = [b"%s\0%s" % (name.encode(), known[features.files[name]]) for name in names]
        return build_rows(backbone, photographs, batches_from, folder, "float16", progress)


@dataclass(frozen=True, slots=True)
class FeatureFiles:
    """Opened features: the file of each image by name, and a function that reads an image's
    array.
    """

    files: Mapping[str, Path]
    read: Callable[[str], Numbers]

    def features(self, name: str, dim: int, regions: int, even: bool) -> Tensor:
        """Finite features of one image in half precision, `[L, dim]`; of more than `regions` rows
        take `even` ones.
        """
        with _reading(f"the features {quoted(name)} in {self.files[name]}"):
            array = np.asarray(self.read(name))
            if even and array.ndim:
                array = array[spread(len(array), regions)]
            fits = array.ndim == 2 and array.shape[1] == dim and 1 <= len(array) <= regions
            if not fits or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
                raise ValueError(
                    f"it must be finite [L, D], L from 1 to backbone.regions={regions}, D = "
                    f"backbone.dim={dim}; "
                    f"it is {list(array.shape)} of {array.dtype}. backbone.sample=even takes "
                    "regions from more rows"
                )
            vectors = torch.tensor(array).half()
            if not vectors.isfinite().all():
                raise ValueError(
                    "it exceeds half precision: divide all features by one number; their scale is "
                    "arbitrary"
                )
            return vectors


@contextmanager
def opened(path: Path) -> Iterator[FeatureFiles]:
    if path.is_dir():
        files = {
            file.stem: file
            for file in sorted(path.iterdir())
            if file.suffix in (".npy", ".npz", ".pt")
        }
        yield FeatureFiles(files, lambda name: _own_array(files[name]))
        return
    kinds = {".npz": _archive, ".npy": _stacked, ".h5": _hdf5, ".hdf5": _hdf5}
    with ExitStack() as stack:
        with _reading(f"backbone.path={quoted(path)}"):
            if path.suffix not in kinds or not path.is_file():
                raise ValueError(
                    "it is not a folder of .npy, .npz or .pt files, or a file of "
                    f"{', '.join(kinds)}"
                )
            names, read = stack.enter_context(kinds[path.suffix](path))
        yield FeatureFiles(dict.fromkeys(names, path), read)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # damaged files make the readers raise any exception
        raise CaptioningError(
            f"cannot read {what}: {type(error).__name__}: {quoted(error)}"
        ) from error


def _members(backbone: Backbone) -> list[Precomputed]:
    return [module for module in backbone.modules() if isinstance(module, Precomputed)]


def _names(
    examples: Sequence[Example], backbone: Precomputed, files: Mapping[str, Path]
) -> list[str]:
    possible = [
        # the last as in the files of the Meshed-Memory Transformer, beside _boxes and _cls_prob
        (
            str(example.image_id),
            example.path.name,
            example.path.stem,
            f"{example.image_id}_features",
        )
        for example in examples
    ]
    names = [next((name for name in each if name in files), "") for each in possible]
    missing = [
        f"{image_id} ({file})"
        for (image_id, file, *_), name in zip(possible, names, strict=True)
        if not name
    ]
    if missing:
        raise CaptioningError(
            f"backbone.path={backbone.path} has features of {len(files)} images, but not of "
            f"{len(missing)} of the "
            f"{len(examples)}: {listed(missing, 5)}. They are looked up by image_id, by file name, "
            "and by file name without its suffix; it has "
            f"{listed(list(map(quoted, files)), 5) or 'none'}"
        )
    return names


def _own_array(file: Path) -> Numbers:
    if file.suffix == ".npz":
        arrays = read_arrays(file)
        names = [name for name in ARRAYS if name in arrays] or [*arrays]
        if len(names) > 1 and names[0] not in ARRAYS:
            raise ValueError(
                f"it contains {', '.join(names)}, none of which is called {' or '.join(ARRAYS)}"
            )
        return arrays[names[0]]
    with open_bounded(file) as content:
        if file.suffix == ".pt":
            return np.asarray(torch.load(content, "cpu", weights_only=True).float())
        return np.asarray(np.load(content, allow_pickle=False))


def _check_size(name: str, size: int) -> None:
    if size > LARGEST:
        raise ValueError(f"unpacked {name:.60} has {size:,} bytes")


@contextmanager
def _archive(path: Path) -> Opened:
    with open_bounded(path, math.inf) as file, np.load(file, allow_pickle=False) as arrays:
        for member in arrays.zip.infolist():
            _check_size(member.filename, member.file_size)
        yield arrays.files, arrays.__getitem__


@contextmanager
def _stacked(path: Path) -> Opened:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    names = read_bytes(path.with_suffix(".txt")).decode().splitlines()
    rows = {name.strip(): row for row, name in enumerate(names)}
    if array.ndim != 3 or not len(array) == len(names) == len(rows):
        different = (
            f"{len(names)} names in {path.with_suffix('.txt').name}, {len(rows)} different ones"
        )
        raise ValueError(
            f"[R, L, D] needs R different names: it is {list(array.shape)}, with {different}"
        )
    yield rows, lambda name: array[rows[name]]


@contextmanager
def _hdf5(path: Path) -> Opened:
    try:
        import h5py  # an extra
    except ImportError as error:
        raise ImportError("h5py is not installed: pip install 'captioning[hdf5]'") from error

    def read(name: str) -> Numbers:
        # Do not follow links: even a link within this file may lead to another file.
        found = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
        if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual:
            raise ValueError(
                "it must be an array stored in this file, not a group, a link or an external "
                "reference"
            )
        _check_size(name, found.nbytes)
        return np.asarray(found[()])

    with h5py.File(path, "r") as file:
        yield list(file), read
