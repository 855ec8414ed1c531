"""Precomputed features in place of a network, such as the regions of Anderson et al. 2018 or the
frames of clips.
"""

from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Interval
from torch import Tensor, nn

from captioning.backbones.base import Backbone
from captioning.backbones.images import ImageTransform, View
from captioning.config.types import PathText, Width, validated
from captioning.errors import CaptioningError


def spread(rows: int, count: int) -> list[int]:
    """The middle row of each of `count` equal parts of `rows` rows; all rows if there are no more
    than `count`.
    """
    return (
        [(2 * part + 1) * rows // (2 * count) for part in range(count)]
        if rows > count
        else list(range(rows))
    )


class WithoutPhotographs(Backbone):
    """Vectors without places on a photograph, which `captioning.features.inputs` reads for a data
    set.
    """

    located = False
    reads_photographs = False

    def forward(self, images: Tensor) -> Tensor:
        raise CaptioningError(
            "this captioner reads the features, clips or sentences of a data set and has no "
            "network that captions "
            "single photographs: use captioning.evaluate to caption that data set"
        )

    def viewed(self, view: View | None) -> Backbone:
        if view is not None:
            raise CaptioningError(
                "views need photographs, and this backbone reads none of them alone: leave "
                "data.views at 1"
            )
        return self


class Precomputed(WithoutPhotographs):
    """Context sets of up to L vectors from files (`captioning.features.inputs`).

    With `sample="even"` a file may have more vectors than `regions`, of which as many are taken,
    evenly `spread`.
    """

    @validated
    def __init__(
        self,
        path: PathText,
        dim: Width = 2048,
        regions: Annotated[int, Interval(ge=1, le=65_536)] = 36,
        sample: Literal["none", "even"] = "none",
    ) -> None:
        settings = (
            f"precomputed, {dim} features of at most {regions} regions"
            + ", evenly spread" * (sample == "even")
        )
        super().__init__(
            settings, nn.Identity(), dim, (1, regions), ImageTransform(1), trainable=False
        )
        self.path, self.sample = Path(path).expanduser(), sample
        self.partial = True
