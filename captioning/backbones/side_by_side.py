"""Two backbones side by side, whose context sets become one.

B images, L context vectors of D features on a grid of (h, w).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from captioning.backbones.base import Backbone, FeatureStore
from captioning.backbones.context import ContextSet
from captioning.backbones.images import View
from captioning.config.types import validated
from captioning.data.dataset import Inputs
from captioning.data.example import Example, Splits


class ConcatBackbone(Backbone):
    """Two backbones on the same pixels, each scaled separately to unit scale.

    Along `features`, both have the same grid and their features are concatenated: D = D_1 + D_2.
    Along `set`, both have the same D and their vectors are concatenated: L = L_1 + L_2, on a grid
    of (1, L) without image positions.
    """

    @validated
    def __init__(
        self, first: Backbone, second: Backbone, along: Literal["features", "set"] = "features"
    ) -> None:
        members = (first, second)
        # mean and standard deviation may differ
        reading = [
            replace(each.transform, mean=(0, 0, 0), std=(1, 1, 1)).settings for each in members
        ]
        both_read = first.reads_photographs and second.reads_photographs
        if first.trainable != second.trainable or (both_read and reading[0] != reading[1]):
            raise ValueError(
                "backbones side by side need the same pixels, and both trained or both frozen: set "
                "the same trainable, "
                "size, resize and interpolation (torchvision's is bilinear), not "
                f"{' and '.join(reading)}"
            )
        if first.grid != second.grid if along == "features" else first.dim != second.dim:
            raise ValueError(
                "backbones side by side need one grid along=features, and vectors of one width "
                "along=set, not "
                f"{first.dim} features on {first.grid} and {second.dim} on {second.grid}: choose "
                "other nodes"
            )
        self.axis = 2 if along == "features" else 1  # along which features `[B, L, D]` are joined
        dim = first.dim + second.dim if along == "features" else first.dim
        grid = (
            first.grid
            if along == "features"
            else (1, sum(h * w for h, w in (first.grid, second.grid)))
        )
        settings = f"({first.settings}) and ({second.settings}) along {along}"
        transform = (first if first.reads_photographs else second).transform
        super().__init__(settings, nn.ModuleList(members), dim, grid, transform, trainable=None)
        self.trainable = first.trainable
        self.pretrained = first.pretrained or second.pretrained
        self.partial = first.partial or second.partial
        self.along: Literal["features", "set"] = along
        self.reads_photographs = first.reads_photographs or second.reads_photographs
        self.located = along == "features" and first.located and second.located

    @property
    def members(self) -> tuple[Backbone, Backbone]:
        first, second = self.network.children()
        assert isinstance(first, Backbone)
        assert isinstance(second, Backbone)
        return first, second

    @property
    def digest(self) -> str:
        return hashlib.sha256(
            "\n".join([self.along, *(each.digest for each in self.members)]).encode()
        ).hexdigest()

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([each(images) for each in self.members], dim=self.axis)

    def valid_mask(self, inputs: Tensor) -> Tensor | None:
        """The vectors of either member (along `features`) or of both, concatenated (along
        `set`).
        """
        if not self.partial:
            return None
        found = []
        for each, part in zip(self.members, self._parts(inputs), strict=True):
            valid = each.valid_mask(part)
            full = torch.ones(
                len(part), each.grid[0] * each.grid[1], dtype=torch.bool, device=part.device
            )
            found.append(full if valid is None else valid)
        return found[0] | found[1] if self.axis == 2 else torch.cat(found, dim=1)

    def context(self, features: Tensor) -> ContextSet:
        parts = zip(self.members, self._parts(features), strict=True)
        vectors = torch.cat([each.context(part).vectors for each, part in parts], dim=self.axis)
        return ContextSet(vectors, self.grid, self.valid_mask(features))

    def _parts(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Images `[B, C, H, W]` for both members, or the features `[B, L, D]` split by member."""
        if inputs.dim() == 4:
            return inputs, inputs
        sizes = [
            each.dim if self.axis == 2 else each.grid[0] * each.grid[1] for each in self.members
        ]
        return inputs.split(sizes, self.axis)

    def with_transform(self, view: View | None) -> Backbone:
        first, second = (each.with_transform(view) for each in self.members)
        return ConcatBackbone(first, second, self.along)

    def prepare(self, splits: Splits) -> None:
        for member in self.members:
            member.prepare(splits)

    def cached_bytes(self, images: int) -> int:
        return sum(member.cached_bytes(images) for member in self.members)

    def open_inputs(self, examples: Sequence[Example], store: FeatureStore, name: str) -> Inputs:
        if self.trainable:
            return super().open_inputs(examples, store, name)
        return ConcatInputs(
            self, [member.open_inputs(examples, store, name) for member in self.members]
        )

    def measure_scale(self, images: Tensor) -> None:
        for member in self.members:
            member.measure_scale(images)


class ConcatInputs:
    """Features of both members of a frozen `ConcatBackbone`, each with a cache of its own."""

    pixels = False

    def __init__(self, backbone: ConcatBackbone, parts: Sequence[Inputs]) -> None:
        self.members, self.axis, self.parts = backbone.members, backbone.axis, parts

    def rows(self, indices: Sequence[int]) -> Tensor:
        return torch.cat([part.rows(indices) for part in self.parts], dim=self.axis)

    def fit_scale(self, backbone: Backbone) -> None:
        """Each member has a scale of its own."""
        for member, part in zip(self.members, self.parts, strict=True):
            part.fit_scale(member)
