"""Examples of several images, such as two views of a chest, or a place before and after.

B examples of V images with C channels, L context vectors of D features from each image.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

import torch
from annotated_types import Interval
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.backbones.base import Backbone, FeatureSource, check_one_image
from captioning.backbones.context import ContextSet
from captioning.config.types import MOST_IMAGES, validated
from captioning.data.dataset import ImageFiles, Inputs
from captioning.data.example import Example, Splits, single_images
from captioning.data.images import FULL_IMAGE, CropBox, Source
from captioning.files import sha256
from experiments.clips_flickr8k.frames import Clips, distinct


class SeveralImages(Backbone):
    """The context sets of up to V images one after the other, with an embedding of the image added.

    Vector i of image v is a_vi + e_v: a_vi at unit scale, e_v learned, with variance 1 / D at first
    (D). The grid is that of one image: positions begin anew in each. Images that an example lacks
    are masked.

    Args:
        of: the backbone of every image.
        images: V.
    """

    why_no_views = (
        "the images of an example would be changed apart from each other: leave data.views at 1, "
        "and corruptions out"
    )

    @validated
    def __init__(self, of: Backbone, images: Annotated[int, Interval(ge=2, le=MOST_IMAGES)] = 2):
        check_one_image([of], "backbone.of")
        if not of.reads_images:
            raise ValueError("backbone=several_images needs a backbone.of that reads images")
        settings = f"{images} images of ({of.settings})"
        super().__init__(settings, of, of.dim, of.grid, of.transform, trainable=None)
        self.images, self.trainable, self.located = images, of.trainable, of.located
        self.partial = True
        self.embedding = nn.Parameter(torch.empty(images, of.dim))
        nn.init.normal_(self.embedding, std=of.dim**-0.5)

    @property
    def of(self) -> Backbone:
        return cast(Backbone, self.network)

    @property
    def digest(self) -> str:
        return sha256(f"{self.settings}\n{self.of.digest}")

    @property
    def positions(self) -> int:
        return self.images * self.of.positions

    def forward(self, images: Tensor) -> Tensor:
        """`[B, V, 4, H, W]` uint8, the last channel 0 for an absent image, to `[B, V L, D]`."""
        features = self.of(images.flatten(0, 1)).unflatten(0, images.shape[:2]).flatten(1, 2)
        return features.masked_fill(~self.valid_mask(images)[..., None], torch.nan)

    def valid_mask(self, inputs: Tensor) -> Tensor:
        """`[B, V L]` bool, for images as in `forward` or features `[B, V L, D]`."""
        if inputs.dim() == 3:
            return ~inputs[..., 0].isnan()
        there = inputs[:, :, 3].flatten(2).amax(2, keepdim=True) > 0
        there = there.expand(-1, -1, self.of.positions)
        valid = self.of.valid_mask(inputs.flatten(0, 1))
        return (there if valid is None else there & valid.view_as(there)).flatten(1)

    def context(self, features: Tensor) -> ContextSet:
        mask = self.valid_mask(features)
        each = features.unflatten(1, (self.images, -1)).flatten(0, 1)
        vectors = self.of.context(each).vectors.unflatten(0, (-1, self.images))
        vectors = (vectors + self.embedding[:, None]).flatten(1, 2)
        return ContextSet(vectors.masked_fill(~mask[..., None], 0), self.grid, mask)

    def prepare(self, splits: Splits) -> None:
        super().prepare(splits)
        self.of.prepare({name: single_images(examples) for name, examples in splits.items()})

    def open_inputs(self, examples: Sequence[Example], store: FeatureSource, name: str) -> Inputs:
        images = [example.paths for example in examples]
        self.check_counts(images)
        files, rows = distinct(images, self.images)
        singles = [Example(file.name, file, ()) for file in files]
        return ImagesOfExamples(self.of.open_inputs(singles, store, name), rows)

    def cached_bytes(self, images: int) -> int:
        return self.of.cached_bytes(self.images * images)

    def read(self, sources: Sequence[Source]) -> Tensor:
        """`[V, 4, H, W]`, see `forward`."""
        self.check_counts([sources])
        images = _marked(torch.stack([self.of.read([source]) for source in sources]))
        return F.pad(images, (0, 0) * 3 + (0, self.images - len(images)))

    def picture(self, paths: Sequence[Path], longest: int) -> tuple[Tensor, CropBox]:
        """The squares that the network sees, next to each other; absent ones are black."""
        transform = replace(self.transform, size=max(1, longest // self.images))
        squares = torch.cat([transform.read(path)[:3] for path in paths], dim=2)
        missing = (self.images - len(paths)) * transform.size
        return F.pad(squares, (0, missing)) / 255, FULL_IMAGE


class ImagesOfExamples(Clips):
    """Rows of examples: features `[B, V L, D]`, or images as in `SeveralImages.forward`."""

    def rows(self, indices: Sequence[int]) -> Tensor:
        if not isinstance(self.pictures, ImageFiles):
            return super().rows(indices)
        rows = self.members[indices]
        images = _marked(self.pictures.rows(rows.ravel().tolist())).unflatten(0, rows.shape)
        return images.masked_fill(torch.from_numpy(rows < 0)[..., None, None, None], 0)

    def fit_scale(self, backbone: Backbone) -> None:
        self.pictures.fit_scale(backbone.network)


def _marked(images: Tensor) -> Tensor:
    """Images `[B, C, H, W]` with a fourth channel, 255 where there is none."""
    return F.pad(images, (0, 0, 0, 0, 0, 4 - images.shape[1]), value=255)
