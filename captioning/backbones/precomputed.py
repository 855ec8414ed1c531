"""Precomputed features in place of a network, such as the regions of Anderson et al. 2018 or the
frames of clips.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from captioning.backbones.arrays import FeatureFiles, Sample, open_arrays
from captioning.backbones.base import Backbone, FeatureSource
from captioning.backbones.context import ContextSet
from captioning.backbones.images import ImageTransform
from captioning.config.types import PathText, Width, given_path, validated
from captioning.data.dataset import Inputs
from captioning.data.example import Example, Splits
from captioning.data.image_files import feature_fingerprints
from captioning.data.readers.ids import coco_numbers, match_names
from captioning.errors import CaptioningError, listed, quoted

THREADS = 4
"""That read features, an image each."""
Features = tuple[FeatureFiles, list[str]]
"""Files, and the name in them of each example."""


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
    al. 2020, and not masked. `whole` has files of a further vector of each image,
    `ContextSet.whole`, which follows the others in a cached row.
    """

    @validated
    def __init__(
        self,
        path: PathText,
        dim: Width = 2048,
        regions: Width = 36,
        sample: Sample = "none",
        padding: Literal["masked", "zeros"] = "masked",
        whole: PathText | None = None,
    ):
        settings = f"precomputed, {dim} features of at most {regions} regions"
        settings += {"none": "", "even": ", evenly spread", "first": ", the first"}[sample]
        settings += ", then zeros" if padding == "zeros" else ""
        settings += ", one of the whole image" if whole else ""
        grid, transform = (1, regions), ImageTransform(1)
        super().__init__(settings, nn.Identity(), dim, grid, transform, trainable=False)
        self.path, self.sample = given_path(path), sample
        self.whole = given_path(whole) if whole else None
        self.partial = padding == "masked"

    @property
    def paths(self) -> dict[str, Path]:
        """Of the features, and of the vectors of whole images, by setting."""
        return {"path": self.path} | ({"whole": self.whole} if self.whole else {})

    @property
    def positions(self) -> int:
        return self.grid[1] + len(self.paths) - 1

    def valid_mask(self, inputs: Tensor) -> Tensor | None:
        return super().valid_mask(inputs[:, : self.grid[1]])

    def context(self, features: Tensor) -> ContextSet:
        context = super().context(features[:, : self.grid[1]])
        if self.whole is None:
            return context
        return replace(context, whole=features[:, -1].to(self.scale.dtype) * self.scale)

    @contextmanager
    def _opened(self, examples: Sequence[Example]) -> Iterator[list[Features]]:
        """The files of `paths`, with the names of the examples in each."""
        with ExitStack() as stack:
            opened = []
            for setting, path in self.paths.items():
                features = stack.enter_context(open_arrays(path, setting))
                opened.append((features, self._names(examples, features.files, setting)))
            yield opened

    def prepare(self, splits: Splits) -> None:
        with self._opened(list(chain.from_iterable(splits.values()))):
            pass

    def open_inputs(self, examples: Sequence[Example], store: FeatureSource, name: str) -> Inputs:
        """The features of `examples`, copied into a cache."""
        with self._opened(examples) as opened, ThreadPoolExecutor(THREADS) as pool:

            def fill(row: Tensor, number: int) -> None:
                for (files, own), room in zip(opened, row.split(self.grid[1]), strict=True):
                    vectors = files.features(own[number], self.dim, len(room), self.sample)
                    room[: len(vectors)] = vectors
                    # missing vectors are NaN, as in `captioning.backbones.context`
                    room[len(vectors) :] = torch.nan if self.partial else 0.0

            def batches_from(batches: Iterable[range]) -> Iterator[tuple[range, Tensor]]:
                for rows in batches:
                    features = torch.empty(len(rows), self.positions, self.dim, dtype=torch.half)
                    list(pool.map(fill, features, rows))
                    yield rows, features

            prints = zip(*(_fingerprints(*features) for features in opened), strict=True)
            return store.copied(self, [*map(b"\0".join, prints)], batches_from, name)

    def _names(
        self, examples: Sequence[Example], files: Mapping[str, Path], setting: str
    ) -> list[str]:
        possible = [_possible_names(example) for example in examples]
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
                    f"backbone.{setting}={self.paths[setting]} has the features {quoted(known[0])} "
                    f"for two images, {owners[known[0]]} and {image}: name those of a FILE.npz by "
                    "image_id"
                )
        if missing:
            raise CaptioningError(
                f"backbone.{setting}={self.paths[setting]} has features of {len(files)} images, "
                f"but not of {len(missing)} of the {len(examples)}: {listed(missing, 5)}. They are "
                "looked up by image_id, by file name, by file name without its suffix, and by the "
                "number in COCO's file names; it has "
                f"{listed(list(map(quoted, files)), 5) or 'none'}"
            )
        return list(owners)


def _possible_names(example: Example) -> list[str]:
    """Names of an image in files of features, the likeliest first."""
    path = example.path
    ids = [str(example.image_id), *coco_numbers(path.stem)]
    # the last as in the files of the Meshed-Memory Transformer, beside _boxes
    return [ids[0], path.name, path.stem, *ids[1:], *(f"{number}_features" for number in ids)]


def _fingerprints(features: FeatureFiles, names: Sequence[str]) -> list[bytes]:
    """Identify the features of each image by its name and its file."""
    files = list(dict.fromkeys(features.files[name] for name in names))
    known = dict(zip(files, feature_fingerprints(files), strict=True))
    return [b"%s\0%s" % (name.encode(), known[features.files[name]]) for name in names]


def move_features(backbones: Iterable[Backbone], path: Path, setting: str = "path") -> None:
    """Set the `path` or `whole` of the precomputed members of `backbones`, which is one."""
    modules = chain.from_iterable(backbone.modules() for backbone in backbones)
    precomputed = (module for module in modules if isinstance(module, Precomputed))
    members = [member for member in precomputed if setting in member.paths]
    paths = sorted({quoted(member.paths[setting]) for member in members})
    if len(paths) != 1:
        raise CaptioningError(
            f"this replaces a single backbone.{setting} of precomputed features, and this "
            f"checkpoint's are read from {', '.join(paths) or 'none'}"
        )
    for member in members:
        setattr(member, setting, path)
