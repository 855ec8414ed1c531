"""Clips as folders of frames, each frame one vector of a frozen backbone.

B images, K frames of a clip, L context vectors of D features.
"""

import hashlib
import os
from pathlib import Path
from typing import cast

from torch import Tensor

from captioning.backbones.base import Backbone
from captioning.backbones.precomputed import WithoutPhotographs, spread
from captioning.config.types import Count, validated
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES


class Frame(Backbone):
    """The mean over the places of a photograph, `[B, 1, D]`; it computes what a cache holds of each
    frame.
    """

    def __init__(self, of: Backbone) -> None:
        super().__init__(
            f"mean over ({of.settings})", of, of.dim, (1, 1), of.transform, trainable=None
        )
        self.partial = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(
            f"mean over places\n{cast(Backbone, self.network).digest}".encode()
        ).hexdigest()

    def forward(self, images: Tensor) -> Tensor:
        return cast(Tensor, self.network(images)).nanmean(dim=1, keepdim=True)


class Frames(WithoutPhotographs):
    """Clips as context sets of up to K vectors in the order of their frames, on a grid of (1, K).

    Args:
        of: the frozen backbone, whose vectors of a frame are averaged.
        frames: K; of longer clips as many, evenly `spread`, while shorter ones are masked.
    """

    @validated
    def __init__(self, of: Backbone, frames: Count = 28) -> None:
        if of.trainable:
            raise ValueError(
                "backbone=frames reads features that are computed once: set "
                "backbone.of.trainable=false"
            )
        settings = f"{frames} frames of ({of.settings})"
        super().__init__(settings, Frame(of), of.dim, (1, frames), of.transform, trainable=None)
        self.partial = True

    @property
    def frame(self) -> Frame:
        return cast(Frame, self.network)


def frames_of(clip: Path, count: int) -> list[Path]:
    """The pictures in a clip's folder in the order of their names, evenly `spread`, links
    followed.
    """
    found = sorted(path for path in clip.glob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        raise CaptioningError(f"{quoted(clip)} must be a folder of pictures, the frames of a clip")
    return [Path(os.path.realpath(found[row], strict=True)) for row in spread(len(found), count)]
