"""Clips as folders of frames, each frame one vector of a frozen backbone.

B images, K frames of a clip, L context vectors of D features.
"""

import hashlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from captioning.backbones.arrays import evenly_spaced
from captioning.backbones.base import Backbone, FeatureStore
from captioning.backbones.precomputed import FeatureOnlyBackbone
from captioning.config.types import Count, validated
from captioning.data.dataset import Inputs
from captioning.data.example import Example, Splits
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES


class Frame(Backbone):
    """The mean over the places of a photograph, `[B, 1, D]`; it computes what a cache holds of each
    frame.
    """

    def __init__(self, of: Backbone) -> None:
        settings = f"mean over ({of.settings})"
        super().__init__(settings, of, of.dim, (1, 1), of.transform, trainable=None)
        self.partial = False

    @property
    def digest(self) -> str:
        inner = cast(Backbone, self.network).digest
        return hashlib.sha256(f"mean over places\n{inner}".encode()).hexdigest()

    def forward(self, images: Tensor) -> Tensor:
        return cast(Tensor, self.network(images)).nanmean(dim=1, keepdim=True)


class Frames(FeatureOnlyBackbone):
    """Clips as context sets of up to K vectors in the order of their frames, on a grid of (1, K).

    Args:
        of: the frozen backbone, whose vectors of a frame are averaged.
        frames: K; of longer clips as many, `evenly_spaced`, while shorter ones are masked.
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

    def prepare(self, splits: Splits) -> None:
        for example in chain.from_iterable(splits.values()):
            frames_of(example.path, 1)

    def open_inputs(self, examples: Sequence[Example], store: FeatureStore, name: str) -> Inputs:
        clips = [frames_of(example.path, self.grid[1]) for example in examples]
        frames = list(dict.fromkeys(chain.from_iterable(clips)))
        features = store.computed(cast(Frame, self.network), frames, name)
        row_of = {frame: row for row, frame in enumerate(frames)}
        rows = np.full((len(clips), self.grid[1]), -1)  # -1: the clip is shorter
        for row, clip in zip(rows, clips, strict=True):
            row[: len(clip)] = [row_of[frame] for frame in clip]
        return Clips(features, rows)


class Clips:
    """Features of the frames of clips, `[B, K, D]`, from a cache with a row per different frame.

    `frame_rows` `[R, K]` are the rows of each clip's frames, -1 where it is shorter.
    """

    pixels = False

    def __init__(self, frames: Inputs, frame_rows: np.ndarray[Any, Any]) -> None:
        self.frames, self.frame_rows = frames, frame_rows

    def rows(self, indices: Sequence[int]) -> Tensor:
        rows = self.frame_rows[indices]
        features = self.frames.rows(rows.ravel().tolist()).unflatten(0, rows.shape).squeeze(2)
        return features.masked_fill(torch.from_numpy(rows < 0)[..., None], torch.nan)

    def fit_scale(self, backbone: Backbone) -> None:
        self.frames.fit_scale(backbone)


def frames_of(clip: Path, count: int) -> list[Path]:
    """The pictures in a clip's folder in the order of their names, `evenly_spaced`, links
    followed.
    """
    frames = sorted(path for path in clip.glob("*") if path.suffix.lower() in SUFFIXES)
    if not frames:
        raise CaptioningError(f"{quoted(clip)} must be a folder of pictures, the frames of a clip")
    return [frames[row].resolve(strict=True) for row in evenly_spaced(len(frames), count)]
