"""Clips as folders of frames, each frame one vector of a frozen backbone.

B images, K frames of a clip, L context vectors of D features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from captioning.backbones.arrays import evenly_spaced
from captioning.backbones.base import Backbone, FeatureSource, check_one_image
from captioning.backbones.precomputed import FeatureOnlyBackbone
from captioning.config.types import Count, validated
from captioning.data.dataset import Inputs
from captioning.data.example import Example, Splits
from captioning.errors import CaptioningError, quoted
from captioning.files import SUFFIXES, sha256

Rows = np.ndarray[Any, Any]


class Frame(Backbone):
    """The mean over the places of a photograph, `[B, 1, D]`.

    It computes what a cache holds of each frame.
    """

    def __init__(self, of: Backbone):
        settings = f"mean over ({of.settings})"
        super().__init__(settings, of, of.dim, (1, 1), of.transform, trainable=None)
        self.partial = False

    @property
    def digest(self) -> str:
        inner = cast(Backbone, self.network).digest
        return sha256(f"mean over places\n{inner}")

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images).nanmean(1, keepdim=True)


class Frames(FeatureOnlyBackbone):
    """Clips as context sets of up to K vectors in the order of their frames, on a grid of (1, K).

    Args:
        of: the frozen backbone, whose vectors of a frame are averaged.
        frames: K; of longer clips as many, `evenly_spaced`, while shorter ones are masked.
    """

    @validated
    def __init__(self, of: Backbone, frames: Count = 28):
        check_one_image([of], "backbone=frames")
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

    def open_inputs(self, examples: Sequence[Example], store: FeatureSource, name: str) -> Inputs:
        clips = [frames_of(example.path, self.grid[1]) for example in examples]
        frames, rows = distinct(clips, self.grid[1])
        return Clips(store.computed(cast(Frame, self.network), frames, name), rows)


def distinct(groups: Sequence[Sequence[Path]], most: int) -> tuple[list[Path], Rows]:
    """The different files of groups, and the number of each group's, `[R, most]`, then -1."""
    files = list(dict.fromkeys(chain.from_iterable(groups)))
    number = {file: row for row, file in enumerate(files)}
    rows = np.full((len(groups), most), -1)
    for row, group in zip(rows, groups, strict=True):
        row[: len(group)] = [number[file] for file in group]
    return files, rows


@dataclass(eq=False)
class Clips:
    """Features of groups of K pictures, `[B, K L, D]`, from rows of L of each different picture.

    `members` `[R, K]` are the rows of each group, -1 where it is shorter, such as a clip's frames.
    """

    pictures: Inputs
    members: Rows

    def rows(self, indices: Sequence[int]) -> Tensor:
        rows = self.members[indices]
        features = self.pictures.rows(rows.ravel().tolist()).unflatten(0, rows.shape)
        absent = torch.from_numpy(rows < 0)[..., None, None]
        return features.masked_fill(absent, torch.nan).flatten(1, 2)

    def fit_scale(self, backbone: Backbone) -> None:
        self.pictures.fit_scale(backbone)


def frames_of(clip: Path, count: int) -> list[Path]:
    """The pictures in a clip's folder by name, `evenly_spaced`; links are followed."""
    frames = sorted(path for path in clip.glob("*") if path.suffix.lower() in SUFFIXES)
    if not frames:
        raise CaptioningError(f"{quoted(clip)} must be a folder of pictures, the frames of a clip")
    return [frames[row].resolve(strict=True) for row in evenly_spaced(len(frames), count)]
