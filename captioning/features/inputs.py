"""What stands for the photographs of a split, as a backbone needs them.

B images, L context vectors of D features.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioning.backbones import Backbone
from captioning.backbones.precomputed import Precomputed
from captioning.backbones.side_by_side import SideBySide
from captioning.data.dataset import Inputs, Photographs
from captioning.data.example import Example
from captioning.features.brought import bring_features
from captioning.features.build import build_features, layout_of
from captioning.features.cache import FeatureCache


class Joined:
    """The features of two backbones side by side, each in a cache of its own: `Inputs` of a frozen `SideBySide`."""

    pixels = False

    def __init__(self, backbone: SideBySide, parts: Sequence[Inputs]) -> None:
        self.parts, self._axis = parts, backbone.axis

    def rows(self, indices: Sequence[int]) -> Tensor:
        """`[B, L, D]`."""
        return torch.cat([part.rows(indices) for part in self.parts], dim=self._axis)


def inputs_of(examples: Sequence[Example], backbone: Backbone, cache: Path, name: str) -> Inputs:
    """Photographs for a trainable backbone; for a frozen one its features, computed where `cache` has them not yet.

    Args:
        examples: the photographs.
        backbone: computes features where it lies.
        cache: the folder of cached things.
        name: of the split, before the progress bar.

    Raises:
        CaptioningError: as for `build_features` and `bring_features`.
    """
    paths = [example.path for example in examples]
    if backbone.trainable:
        return Photographs(paths, backbone.transform)
    if isinstance(backbone, SideBySide):
        return Joined(backbone, [inputs_of(examples, each, cache, name) for each in backbone.members])
    folder, progress = cache / "features", f"features of {name}"
    if isinstance(backbone, Precomputed):
        return bring_features(examples, backbone, folder, progress)
    return build_features(backbone, paths, folder, progress=progress)


def cached_bytes(images: int, backbone: Backbone) -> int:
    """What the features of so many photographs take on disk, cached or yet to be; none of a trainable backbone."""
    if backbone.trainable:
        return 0
    if isinstance(backbone, SideBySide):
        return sum(cached_bytes(images, each) for each in backbone.members)
    return layout_of(backbone, images, "float16").total_bytes


def to_unit_scale(backbone: Backbone, train: Inputs) -> None:
    """Measures on the training split's features the number by which a backbone multiplies them; pixels have none.

    Raises:
        CaptioningError: as for `FeatureCache.scale`.
    """
    if isinstance(train, FeatureCache):
        backbone.scale.fill_(train.scale())
    elif isinstance(train, Joined) and isinstance(backbone, SideBySide):
        for each, part in zip(backbone.members, train.parts, strict=True):
            to_unit_scale(each, part)
