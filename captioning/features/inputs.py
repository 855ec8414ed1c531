"""Model inputs of a split: images or cached features."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioning.backbones import Backbone
from captioning.backbones.precomputed import Precomputed
from captioning.backbones.side_by_side import SideBySide
from captioning.data.dataset import Inputs, Photographs
from captioning.data.example import Example
from captioning.features.build import build_features, layout_of
from captioning.features.cache import FeatureCache
from captioning.features.own import own_features


class Joined:
    """Features of a frozen `SideBySide`, with a separate cache for each member."""

    pixels = False

    def __init__(self, backbone: SideBySide, parts: Sequence[Inputs]) -> None:
        self.parts, self._axis = parts, backbone.axis

    def rows(self, indices: Sequence[int]) -> Tensor:
        return torch.cat([part.rows(indices) for part in self.parts], dim=self._axis)


def inputs_of(examples: Sequence[Example], backbone: Backbone, cache: Path, name: str) -> Inputs:
    """Photographs for a trainable backbone, or features of a frozen one, computed unless they are cached."""
    paths = [example.path for example in examples]
    if backbone.trainable:
        return Photographs(paths, backbone.transform)
    if isinstance(backbone, SideBySide):
        return Joined(backbone, [inputs_of(examples, member, cache, name) for member in backbone.members])
    folder, progress = cache / "features", f"features of {name}"
    if isinstance(backbone, Precomputed):
        return own_features(examples, backbone, folder, progress)
    return build_features(backbone, paths, folder, progress=progress)


def cached_bytes(images: int, backbone: Backbone) -> int:
    """Disk space of the cached features of `images` photographs; 0 for a trainable backbone."""
    if backbone.trainable:
        return 0
    if isinstance(backbone, SideBySide):
        return sum(cached_bytes(images, member) for member in backbone.members)
    return layout_of(backbone, images, "float16").total_bytes


def to_unit_scale(backbone: Backbone, train: Inputs) -> None:
    """Set a backbone's scale from the training features; pixels have no scale."""
    if isinstance(train, FeatureCache):
        backbone.scale.fill_(train.scale())
    elif isinstance(train, Joined) and isinstance(backbone, SideBySide):
        for member, part in zip(backbone.members, train.parts, strict=True):
            to_unit_scale(member, part)
