"""Two backbones side by side, whose context sets become one.

B images, L context vectors of D features on a grid of (h, w).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from captioning.backbones.base import Backbone, FeatureSource, check_one_image
from captioning.backbones.context import ContextSet
from captioning.backbones.images import View
from captioning.config.types import validated
from captioning.data.dataset import Inputs
from captioning.data.example import Example, Splits
from captioning.errors import CaptioningError
from captioning.features.build import UncachedImages


class ConcatBackbone(Backbone):
    """Two backbones on the same pixels, each scaled separately to unit scale.

    Along `features`, both have the same grid and their features are concatenated: D = D_1 + D_2.
    Along `set`, both have the same D and their vectors are concatenated: L = L_1 + L_2, on a grid
    of (1, L) without image positions.
    """

    @validated
    def __init__(
        self, first: Backbone, second: Backbone, along: Literal["features", "set"] = "features"
    ):
        members = (first, second)
        check_one_image(members, "backbone=side_by_side")
        # mean and standard deviation may differ
        reading = [
            replace(member.transform, mean=(0, 0, 0), std=(1, 1, 1)).settings for member in members
        ]
        both_read = first.reads_images and second.reads_images
        if first.trainable != second.trainable or (both_read and reading[0] != reading[1]):
            raise ValueError(
                "backbones side by side need the same pixels, and both trained or both frozen: set "
                "the same trainable, size, resize and interpolation (torchvision's is bilinear), "
                f"not {' and '.join(reading)}"
            )
        joined = along == "features"
        if first.grid != second.grid if joined else first.dim != second.dim:
            raise ValueError(
                "backbones side by side need one grid along=features, and vectors of one width "
                f"along=set, not {first.dim} features on {first.grid} and {second.dim} on "
                f"{second.grid}: choose other nodes"
            )
        self.axis = 2 if joined else 1  # along which features `[B, L, D]` are joined
        dim, grid = first.dim, (1, first.positions + second.positions)
        if joined:
            dim, grid = first.dim + second.dim, first.grid
        settings = f"({first.settings}) and ({second.settings}) along {along}"
        transform = (first if first.reads_images else second).transform
        super().__init__(settings, nn.ModuleList(members), dim, grid, transform, trainable=None)
        self.trainable = first.trainable
        self.pretrained = first.pretrained or second.pretrained
        self.partial = first.partial or second.partial
        self.along = along
        self.reads_images = first.reads_images or second.reads_images
        self.located = joined and first.located and second.located

    @property
    def members(self) -> tuple[Backbone, Backbone]:
        first, second = self.network.children()
        assert isinstance(first, Backbone)
        assert isinstance(second, Backbone)
        return first, second

    @property
    def digest(self) -> str:
        digests = [self.along, *(member.digest for member in self.members)]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([member(images) for member in self.members], dim=self.axis)

    def valid_mask(self, inputs: Tensor) -> Tensor | None:
        """The vectors that exist in either member, along `features`, or in both, along `set`."""
        if not self.partial:
            return None
        masks = []
        for member, part in zip(self.members, self._parts(inputs), strict=True):
            mask = member.valid_mask(part)
            if mask is None:
                mask = inputs.new_ones(len(part), member.positions, dtype=torch.bool)
            masks.append(mask)
        return masks[0] | masks[1] if self.axis == 2 else torch.cat(masks, dim=1)

    def context(self, features: Tensor) -> ContextSet:
        parts = zip(self.members, self._parts(features), strict=True)
        vectors = torch.cat([member.context(part).vectors for member, part in parts], self.axis)
        return ContextSet(vectors, self.grid, self.valid_mask(features))

    def _parts(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Images `[B, C, H, W]` for both members, or the features `[B, L, D]` split by member."""
        if inputs.dim() == 4:
            return inputs, inputs
        sizes = [member.dim if self.axis == 2 else member.positions for member in self.members]
        return inputs.split(sizes, self.axis)

    def with_transform(self, view: View | None) -> Backbone:
        first, second = (member.with_transform(view) for member in self.members)
        return ConcatBackbone(first, second, self.along)

    def prepare(self, splits: Splits) -> None:
        for member in self.members:
            member.prepare(splits)

    def cached_bytes(self, images: int) -> int:
        return sum(member.cached_bytes(images) for member in self.members)

    def open_inputs(self, examples: Sequence[Example], store: FeatureSource, name: str) -> Inputs:
        if self.trainable:
            return super().open_inputs(examples, store, name)
        parts = [member.open_inputs(examples, store, name) for member in self.members]
        uncached = [part for part in parts if isinstance(part, UncachedImages)]
        if not uncached:
            return ConcatInputs(self, parts)
        if len(uncached) < len(parts):
            raise CaptioningError(
                "data.cache_features=false needs two backbones that read images, and one of these "
                "reads features: leave it at true"
            )
        return ConcatImages(uncached[0].paths, self.transform)

    def measure_scale(self, images: Tensor) -> None:
        for member in self.members:
            member.measure_scale(images)


class ConcatImages(UncachedImages):
    """Images whose features both members of a frozen `ConcatBackbone` compute in every step."""

    def fit_scale(self, backbone: Backbone) -> None:
        assert isinstance(backbone, ConcatBackbone)
        for member in backbone.members:
            super().fit_scale(member)


class ConcatInputs:
    """Features of both members of a frozen `ConcatBackbone`, each with a cache of its own."""

    def __init__(self, backbone: ConcatBackbone, parts: Sequence[Inputs]):
        self.members, self.axis, self.parts = backbone.members, backbone.axis, parts

    def rows(self, indices: Sequence[int]) -> Tensor:
        return torch.cat([part.rows(indices) for part in self.parts], dim=self.axis)

    def fit_scale(self, backbone: Backbone) -> None:
        """Each member has a scale of its own."""
        for member, part in zip(self.members, self.parts, strict=True):
            part.fit_scale(member)
