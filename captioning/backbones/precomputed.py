"""Precomputed features in place of a network, such as the regions of Anderson et al. 2018 or the
frames of clips.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from captioning.backbones.arrays import Sample, open_arrays
from captioning.backbones.base import Backbone, FeatureSource
from captioning.backbones.images import ImageTransform
from captioning.config.types import PathText, Width, given_path, validated
from captioning.data.dataset import Inputs
from captioning.data.example import Example, Splits
from captioning.data.image_files import feature_fingerprints
from captioning.data.readers.ids import match_names
from captioning.errors import CaptioningError, listed, quoted

BATCH = 32


class FeatureOnlyBackbone(Backbone):
    """Vectors without places on an image, which come with a data set."""

    located = False
    reads_images = False
    why_no_views = (
        "views need photographs, and this backbone reads none of them alone: leave data.views at 1"
    )

    def forward(self, images: Tensor) -> Tensor:
        raise CaptioningError(
            "this captioner reads the features, clips or sentences of a data set and has no "
            "network that captions single photographs: use captioning evaluate"
        )


class Precomputed(FeatureOnlyBackbone):
    """Context sets of up to L vectors from files (`captioning.backbones.arrays`).

    With `sample` a file may have more vectors than `regions`, of which as many are taken. With
    `padding="zeros"` missing vectors are zeros that are attended to, as in the code of Cornia et
    al. 2020, and not masked.
    """

    @validated
    def __init__(
        self,
        path: PathText,
        dim: Width = 2048,
        regions: Width = 36,
        sample: Sample = "none",
        padding: Literal["masked", "zeros"] = "masked",
    ):
        settings = f"precomputed, {dim} features of at most {regions} regions"
        settings += {"none": "", "even": ", evenly spread", "first": ", the first"}[sample]
        settings += ", then zeros" if padding == "zeros" else ""
        grid, transform = (1, regions), ImageTransform(1)
        super().__init__(settings, nn.Identity(), dim, grid, transform, trainable=False)
        self.path, self.sample = given_path(path), sample
        self.partial = padding == "masked"

    def prepare(self, splits: Splits) -> None:
        with open_arrays(self.path) as features:
            self._names(list(chain.from_iterable(splits.values())), features.files)

    def open_inputs(self, examples: Sequence[Example], store: FeatureSource, name: str) -> Inputs:
        """The features of `examples`, copied into a cache."""
        with open_arrays(self.path) as features:
            names = self._names(examples, features.files)
            files = list(dict.fromkeys(features.files[name] for name in names))
            known = dict(zip(files, feature_fingerprints(files), strict=True))

            def batches_from(done: int) -> Iterator[Tensor]:
                length = self.grid[1]
                # missing vectors are NaN, as in `captioning.backbones.context`
                missing = torch.nan if self.partial else 0.0
                for first in range(done, len(names), BATCH):
                    batch = names[first : first + BATCH]
                    rows = torch.full((len(batch), length, self.dim), missing).half()
                    for row, image in zip(rows, batch, strict=True):
                        vectors = features.features(image, self.dim, length, self.sample)
                        row[: len(vectors)] = vectors
                    yield rows

            rows = [b"%s\0%s" % (name.encode(), known[features.files[name]]) for name in names]
            return store.copied(self, rows, batches_from, name)

    def _names(self, examples: Sequence[Example], files: Mapping[str, Path]) -> list[str]:
        # the last as in the files of the Meshed-Memory Transformer, beside _boxes
        possible = [
            (str(e.image_id), e.path.name, e.path.stem, f"{e.image_id}_features") for e in examples
        ]
        # the id 1 must not stand for 1.jpg, which may be the file of another image
        similar = match_names(chain.from_iterable(possible), files, strict=True)
        owners, missing = dict[str, str](), []
        for example, names in zip(examples, possible, strict=True):
            image = f"{example.image_id} ({example.path.name})"
            known = [similar[name] for name in names if name in similar]
            if not known:
                missing.append(image)
            elif owners.setdefault(known[0], image) != image:
                raise CaptioningError(
                    f"backbone.path={self.path} has the features {quoted(known[0])} for two "
                    f"images, {owners[known[0]]} and {image}: name those of a FILE.npz by image_id"
                )
        if missing:
            raise CaptioningError(
                f"backbone.path={self.path} has features of {len(files)} images, but not of "
                f"{len(missing)} of the {len(examples)}: {listed(missing, 5)}. They are looked up "
                "by image_id, by file name, and by file name without its suffix; it has "
                f"{listed(list(map(quoted, files)), 5) or 'none'}"
            )
        return list(owners)


def move_features(backbones: Iterable[Backbone], path: Path) -> None:
    """Point the precomputed members of `backbones` to `path`."""
    modules = chain.from_iterable(backbone.modules() for backbone in backbones)
    members = [module for module in modules if isinstance(module, Precomputed)]
    paths = sorted({quoted(member.path) for member in members})
    if len(paths) != 1:
        raise CaptioningError(
            "features must replace a single path of precomputed features, and this checkpoint's "
            f"are read from {', '.join(paths) or 'none'}"
        )
    for member in members:
        member.path = path
