"""Precomputed features in place of a network, such as the regions of Anderson et al. 2018."""

from pathlib import Path
from typing import Annotated

from annotated_types import Interval
from torch import Tensor, nn

from captioning.backbones.base import Backbone
from captioning.backbones.images import ImageTransform, View
from captioning.config.types import PathText, Width, validated
from captioning.errors import CaptioningError


class Precomputed(Backbone):
    """Context sets of up to L vectors from files (`captioning.features.inputs`), without image positions."""

    located = False
    reads_photographs = False

    @validated
    def __init__(
        self, path: PathText, dim: Width = 2048, regions: Annotated[int, Interval(ge=1, le=65_536)] = 36
    ) -> None:
        settings = f"precomputed, {dim} features of at most {regions} regions"
        super().__init__(settings, nn.Identity(), dim, (1, regions), ImageTransform(1), trainable=False)
        self.path = Path(path).expanduser()
        self.partial = True

    def forward(self, images: Tensor) -> Tensor:
        raise CaptioningError(
            "this captioner reads precomputed features and has no network that computes them from photographs: use "
            "captioning.evaluate to caption the data set with these features"
        )

    def viewed(self, view: View | None) -> Backbone:
        if view is not None:
            raise CaptioningError("views need photographs, and backbone=features reads none: leave data.views at 1")
        return self
