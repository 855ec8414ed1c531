"""Features that were computed elsewhere, brought into a cache like any other: one read of each, half precision.

B images in a batch, at most L context vectors of D features.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioning.backbones import Backbone
from captioning.backbones.precomputed import Precomputed
from captioning.data.example import Example, Splits
from captioning.data.photographs import fingerprints
from captioning.errors import CaptioningError, quoted
from captioning.features.build import build_rows
from captioning.features.cache import FeatureCache
from captioning.features.files import FeatureFiles, opened

BATCH = 32
NAMED = 5
"""Images that an error names."""


def check_features(splits: Splits, backbone: Backbone) -> None:
    """Looks for the features of every image, where `backbone` or a member of it has them brought along.

    Raises:
        CaptioningError: names some that have none.
    """
    examples = [example for examples in splits.values() for example in examples]
    for member in _members(backbone):
        with opened(member.path) as found:
            _names(examples, member, found.files)


def move_features(backbones: Sequence[Backbone], path: Path) -> None:
    """Notes that the features which `backbones` or members of them have brought along lie at `path` now.

    Raises:
        CaptioningError: none has any, or they come from several places.
    """
    found = [member for backbone in backbones for member in _members(backbone)]
    places = ", ".join(dict.fromkeys(quoted(member.path) for member in found))
    if not found:
        raise CaptioningError("features is the place of features brought along, and this checkpoint reads none")
    if len({member.path for member in found}) > 1:
        raise CaptioningError(f"features is one place, but features are read from {places}: put them there again")
    for member in found:
        member.path = path


def bring_features(examples: Sequence[Example], backbone: Precomputed, folder: Path, progress: str) -> FeatureCache:
    """The features of `examples` in order, read where they are not cached below `folder` yet.

    Raises:
        CaptioningError: some are missing, cannot be read or are no such features; or the cache cannot be written.
    """
    with opened(backbone.path) as found:
        names = _names(examples, backbone, found.files)
        files = list(dict.fromkeys(found.files[name] for name in names))
        known = dict(zip(files, fingerprints(files), strict=True))
        rows = [b"%s\0%s" % (name.encode(), known[found.files[name]]) for name in names]
        return build_rows(
            backbone, rows, lambda done: _read(names[done:], backbone, found), folder, "float16", progress
        )


def _members(backbone: Backbone) -> list[Precomputed]:
    return [module for module in backbone.modules() if isinstance(module, Precomputed)]


def _names(examples: Sequence[Example], backbone: Precomputed, files: Mapping[str, Path]) -> list[str]:
    """What the features of each are called."""
    names, missing = [], []
    for example in examples:
        possible = (str(example.image_id), example.path.name, example.path.stem)
        name = next((name for name in possible if name in files), None)
        if name is None:
            missing.append(f"{example.image_id} ({example.path.name})")
        else:
            names.append(name)
    if missing:
        more = ", ..." if len(missing) > NAMED else ""
        raise CaptioningError(
            f"backbone.path={backbone.path} has features of {len(files)} images, but not of {len(missing)} of the "
            f"{len(examples)}: {', '.join(missing[:NAMED])}{more}. They are looked for by image_id, by file name, and "
            "by file name without its ending"
        )
    return names


def _read(names: Sequence[str], backbone: Precomputed, found: FeatureFiles) -> Iterator[Tensor]:
    """`[B, L, D]` in half precision, what an image has not marked as `captioning.backbones.context` says."""
    regions = backbone.grid[1]
    for first in range(0, len(names), BATCH):
        batch = names[first : first + BATCH]
        rows = torch.full((len(batch), regions, backbone.dim), torch.nan, dtype=torch.float16)
        for row, name in zip(rows, batch, strict=True):
            vectors = torch.tensor(found.features(name, backbone.dim, regions))
            row[: len(vectors)] = vectors
            if not row[: len(vectors)].isfinite().all():
                raise CaptioningError(
                    f"the largest of the features {name} in {found.files[name]} is {vectors.abs().max():.4g}, which "
                    "half precision cannot hold: divide all features by one number, since their scale does not count"
                )
        yield rows
