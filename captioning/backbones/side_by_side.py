"""Two backbones side by side, whose context sets become one.

B images, L context vectors of D features on a grid of (h, w).
"""

import hashlib
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from captioning.backbones.base import Backbone
from captioning.backbones.context import ContextSet
from captioning.backbones.images import View
from captioning.config.types import validated
from captioning.errors import CaptioningError


class SideBySide(Backbone):
    """Two backbones that see the same pixels; each is brought to unit scale by a number of its own.

    Along `features` a place has the features of both, of one grid: D = D_1 + D_2. Along `set` the vectors of the second
    follow those of the first, of one D: L = L_1 + L_2, on a grid of (1, L) without a place on the photograph.

    Attributes:
        members: the two.
        axis: along which features `[B, L, D]` are joined.
    """

    @validated
    def __init__(self, first: Backbone, second: Backbone, along: Literal["features", "set"] = "features") -> None:
        """Take two built backbones."""
        _check(first, second, along)
        self.axis = 2 if along == "features" else 1
        dim = first.dim + second.dim if along == "features" else first.dim
        grid = first.grid if along == "features" else (1, sum(h * w for h, w in (first.grid, second.grid)))
        networks = nn.ModuleList([first, second])
        settings = f"({first.settings}) and ({second.settings}) along {along}"
        transform = (first if first.reads_photographs else second).transform
        super().__init__(settings, networks, dim, grid, transform, first.trainable)
        self.partial = first.partial or second.partial
        self.along: Literal["features", "set"] = along
        self.reads_photographs = first.reads_photographs or second.reads_photographs
        self.located = along == "features" and first.located and second.located

    def _choose_trained(self, trainable: bool | str) -> None:
        """Leaves that to each, which may be trained from a node of its own on."""

    @property
    def members(self) -> tuple[Backbone, Backbone]:
        """Both backbones."""
        first, second = self.network.children()
        assert isinstance(first, Backbone)
        assert isinstance(second, Backbone)
        return first, second

    @property
    def digest(self) -> str:
        """SHA-256 over both and how they are joined."""
        return hashlib.sha256("\n".join([self.along, *(each.digest for each in self.members)]).encode()).hexdigest()

    def forward(self, images: Tensor) -> Tensor:
        """Features of both, each unscaled: `[B, C, H, W]` uint8 to `[B, L, D]`."""
        return torch.cat([each(images) for each in self.members], dim=self.axis)

    def present(self, inputs: Tensor) -> Tensor | None:
        """As of any backbone: along `features` a place that either has, along `set` those of both in a row."""
        if not self.partial:
            return None
        parts = (inputs, inputs) if inputs.dim() == 4 else self._parts(inputs)
        found = []
        for each, part in zip(self.members, parts, strict=True):
            present = each.present(part)
            full = torch.ones(len(part), each.grid[0] * each.grid[1], dtype=torch.bool, device=part.device)
            found.append(full if present is None else present)
        return found[0] | found[1] if self.axis == 2 else torch.cat(found, dim=1)

    def context(self, features: Tensor) -> ContextSet:
        """The context set of features `[B, L, D]`, those of each backbone at unit scale."""
        parts = zip(self.members, self._parts(features), strict=True)
        vectors = torch.cat([each.context(part).vectors for each, part in parts], dim=self.axis)
        return ContextSet(vectors, self.grid, self.present(features))

    def _parts(self, features: Tensor) -> tuple[Tensor, ...]:
        """The features of each."""
        sizes = [each.dim if self.axis == 2 else each.grid[0] * each.grid[1] for each in self.members]
        return features.split(sizes, self.axis)

    def viewed(self, view: View | None) -> Backbone:
        """Both, weights shared, for photographs that are changed by `view` first."""
        first, second = (each.viewed(view) for each in self.members)
        return SideBySide(first, second, self.along)


def _check(first: Backbone, second: Backbone, along: str) -> None:
    # each has a mean and a standard deviation of its own
    one, other = (replace(each.transform, mean=(0, 0, 0), std=(1, 1, 1)).settings for each in (first, second))
    problem = ""
    if first.trainable != second.trainable:
        problem = "are both trained or both frozen: set trainable alike"
    elif first.reads_photographs and second.reads_photographs and one != other:
        problem = (
            f"see the same pixels, but the first reads photographs by {one}, the second by {other}: set size, resize "
            "and timm's interpolation alike (torchvision's is bilinear)"
        )
    elif along == "features" and first.grid != second.grid:
        problem = f"along features need one grid, not {first.grid} and {second.grid}: choose other nodes, or along=set"
    elif along == "set" and first.dim != second.dim:
        problem = (
            f"along set need vectors of one width, not of {first.dim} and {second.dim} features: choose other nodes, "
            "or along=features"
        )
    if problem:
        raise CaptioningError(f"backbones side by side {problem}")
