"""Base of all backbones: preprocessing, freezing, digest and scale of features.

B images of C channels (3 colours; with padding a 4th that marks the photograph), H rows and W
columns of pixels; L context vectors of D features on a grid of (h, w).
"""

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import torch
from annotated_types import DocInfo
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid, on_image
from captioning.backbones.images import ImageTransform, View
from captioning.backbones.weights import check_name
from captioning.data.columns import FirstPaths, file_counts, take
from captioning.data.dataset import ImageFiles, Inputs
from captioning.data.example import Example, Splits
from captioning.data.images import CropBox, Source
from captioning.errors import CaptioningError
from captioning.files import JOIN

PIXELS = 8 * 224**2
"""Of one pass without gradients on a CPU: arrays of more photographs fit neither its caches nor the
memory that a process keeps (`captioning.machine.keep_memory`), and a photograph of 320 pixels takes
a third longer.
"""

Trainable = Annotated[
    bool | str, DocInfo("true, false or the node from which on weights are trained")
]

Batches = Callable[[Iterable[range]], Iterator[tuple[range, Tensor]]]
"""Yields the rows of a cache that it is given in batches, with their features."""


class FeatureSource(Protocol):
    """A cache of features on disk (`captioning.features.build`); `name` is the split's."""

    def computed(self, backbone: "Backbone", paths: Sequence[Path], name: str) -> Inputs:
        """The features of images by a frozen network, or the images for it to read in a step."""
        ...

    def copied(
        self, backbone: "Backbone", fingerprints: Sequence[bytes], batches_from: Batches, name: str
    ) -> Inputs:
        """Rows that are made from files with these fingerprints."""
        ...


class Backbone(nn.Module):
    """A network that makes context vectors of images.

    It maps normalised images `[B, 3, H, W]` to a feature map `[B, D, h, w]`.

    `settings` describe the architecture, for the digest; parameters are in the order of use. The
    output of a frozen network may be cached.

    Example:
        The mean colours of four quarters of an image:

        >>> class Colours(Backbone):
        ...     def __init__(self, size=8):
        ...         quarters = nn.AvgPool2d(size // 2)
        ...         super().__init__("Colours", quarters, 3, (2, 2), ImageTransform(size), False)
        >>> Colours()(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).shape
        torch.Size([1, 4, 3])
    """

    # factor to unit scale, measured on the training set; a buffer, saved in checkpoints
    scale: Tensor
    # grid cells correspond to places of the photograph, so that maps and boxes can be overlaid
    located = True
    reads_images = True
    pretrained = False  # weights were downloaded or read from a file
    images = 1  # V, of an example at most
    why_no_views = ""  # where photographs cannot be changed before they are read

    def __init__(
        self,
        settings: str,
        network: nn.Module,
        dim: int,
        grid: Grid,
        transform: ImageTransform,
        trainable: bool | str | None,  # None leaves gradients as they are
    ):
        super().__init__()
        self.settings, self.dim, self.grid, self.transform = settings, dim, grid, transform
        # Twice as fast on a CPU in this memory format, in which the map has the layout of context
        # vectors.
        self.network = network.to(memory_format=torch.channels_last)
        self.size = transform.size
        self.partial = transform.resize == "pad"  # an image may have fewer than L vectors
        self.trainable = bool(trainable)
        self.register_buffer("scale", torch.tensor(1.0))
        if trainable is not None:
            network.requires_grad_(self.trainable)
        if isinstance(trainable, str):
            _freeze_before(network, trainable)
        self.train()

    @property
    def digest(self) -> str:
        """SHA-256 over architecture, weights and preprocessing: equal digests, equal features."""
        sha = hashlib.sha256(f"{self.settings}\n{self.transform.settings}\n".encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return sha.hexdigest()

    @property
    def positions(self) -> int:
        """L."""
        return self.grid[0] * self.grid[1]

    @property
    def sizes(self) -> dict[str, Any]:
        """Constructor arguments of a model."""
        return {"d_context": self.dim, "grid": self.grid}

    def forward(self, images: Tensor) -> Tensor:
        """Unscaled context vectors `[B, L, D]` of images `[B, C, H, W]` uint8, row by row.

        Vectors in the padding are NaN.
        """
        gradients = torch.set_grad_enabled(self.trainable and torch.is_grad_enabled())
        # In single precision: a frozen network as for a cache; on a CPU also a trained one, as a
        # backward pass in bfloat16 takes up to twice the time.
        device = "cuda" if images.is_cuda and not self.trainable else "cpu"
        with gradients, torch.autocast(device, enabled=False):
            colours = self.transform.normalise(images[:, :3])
            # in the precision of the whole module
            features = self._maps(colours.to(self.scale.dtype)).flatten(2).mT
            valid = self.valid_mask(images)
            return features if valid is None else features.masked_fill(~valid[..., None], torch.nan)

    def _maps(self, images: Tensor) -> Tensor:
        if images.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_exporting():
            return self.network(images)
        most = max(1, PIXELS // images.shape[2:].numel())
        return torch.cat([self.network(part) for part in images.split(most)])

    def valid_mask(self, inputs: Tensor) -> Tensor | None:
        """The vectors that exist, `[B, L]` bool; None: all.

        Given are images `[B, C, H, W]` or features `[B, L, D]`.
        """
        if not self.partial:
            return None
        if inputs.dim() == 4:
            return on_image(inputs[:, 3], self.grid)
        return ~inputs[..., 0].isnan()

    def context(self, features: Tensor) -> ContextSet:
        """The context set, at unit scale, of features `[B, L, D]` in any precision.

        They come from `forward` or from a cache.
        """
        mask = self.valid_mask(features)
        if mask is not None:
            features = features.masked_fill(~mask[..., None], 0)
        # Cast to the model's precision, which the buffer has; the product alone would stay in half
        # precision.
        return ContextSet(features.to(self.scale.dtype) * self.scale, self.grid, mask)

    def context_of(self, inputs: Tensor) -> ContextSet:
        """The context set of images, `[B, C, H, W]` or several each, or features `[B, L, D]`."""
        return self.context(self(inputs) if inputs.dim() > 3 else inputs)

    def prepare(self, splits: Splits) -> None:
        """Refuse examples without what this backbone reads, and learn from the others.

        It is called before `open_inputs`.
        """
        for examples in splits.values():
            more = take(examples, file_counts(examples) > self.images)
            self.check_counts(example.paths for example in more)

    def check_counts(self, images: Iterable[Sequence[Source]]) -> None:
        """Refuse the images of an example that are more than this reads."""
        for sources in images:
            if len(sources) > self.images:
                raise CaptioningError(
                    f"an example has {len(sources)} images ({JOIN.join(map(str, sources)):.200}), "
                    f"and this backbone reads {self.images}: train with one that reads several, "
                    f"as in experiments/several_images, and backbone.images={len(sources)}"
                )

    def read(self, sources: Sequence[Source]) -> Tensor:
        """The images of an example as `forward` takes them, uint8 `[C, H, W]` of the only one."""
        self.check_counts([sources])
        return self.transform.read(sources[0])

    def picture(self, paths: Sequence[Path], longest: int) -> tuple[Tensor, CropBox]:
        """An example as maps are drawn on it, `[3, H, W]` of 0 to 1, and where they are on it."""
        return self.transform.whole(paths[0], longest) / 255, self.transform.frame(paths[0])

    def open_inputs(self, examples: Sequence[Example], store: FeatureSource, name: str) -> Inputs:
        """What a batch of `examples` brings: images if this is trained, else what `store` has."""
        Backbone.prepare(self, {name: examples})
        paths = FirstPaths(examples)
        if self.trainable:
            return ImageFiles(paths, self.transform)
        return store.computed(self, paths, name)

    def cached_bytes(self, images: int) -> int:
        """About the disk space of the cached features of so many images."""
        return 0 if self.trainable else 2 * images * self.positions * self.dim

    def measure_scale(self, images: Tensor) -> None:
        """Bring the vectors of `images` to unit scale; random weights keep theirs."""
        if self.pretrained:
            with torch.no_grad():
                vectors = self(images.to(self.scale.device))
                self.scale.fill_(1 / vectors.square().nanmean().sqrt())

    def with_transform(self, view: View | None) -> "Backbone":
        """A copy with shared weights whose transform applies `view` first."""
        if view and self.why_no_views:
            raise CaptioningError(self.why_no_views)
        other = copy.copy(self)
        other.transform = replace(self.transform, view=view)
        return other

    def train(self, mode: bool = True) -> "Backbone":
        # (D) The network stays in evaluation mode even in training: batch statistics would make N
        # processes differ from one, and captioning batches are too small to estimate them.
        super().train(mode)
        self.network.eval()
        return self


def check_one_image(backbones: Iterable[Backbone], what: str) -> None:
    """Refuse captioners of several images where `what` takes one."""
    for backbone in backbones:
        if backbone.images > 1:
            raise CaptioningError(
                f"{what} takes one image per example, and {type(backbone).__name__} reads "
                f"{backbone.images}: leave it out; captioning predict and evaluate caption them"
            )


def _freeze_before(network: nn.Module, node: str) -> None:
    """Freeze the parameters before `node`, a prefix of parameter names."""
    parameters = [(n.removeprefix("extractor."), p) for n, p in network.named_parameters()]
    nodes = [
        name.rsplit(".", depth)[0]
        for name, _ in parameters
        for depth in range(1, 1 + name.count("."))
    ]
    nodes = [*dict.fromkeys(nodes)]
    check_name("backbone.trainable", node, nodes, "true, false or a node of the network")
    for name, parameter in parameters:
        if name.startswith(f"{node}."):
            return
        parameter.requires_grad_(False)


class FeatureMap(NamedTuple):
    """What a truncated network makes of an image."""

    dim: int  # D
    grid: Grid
    last: bool  # whether features are the last axis, `[B, h, w, D]`, in place of `[B, D, h, w]`


def feature_map(network: nn.Module, node: str | None, size: int) -> FeatureMap:
    """What a network, truncated after `node`, makes of an image of `size`.

    The image is square and so is its grid: the third axis is that of the features. If all three
    are equal, a wide image tells which of them is the grid's width.

    Raises:
        ValueError: the output is not a map.
    """
    with torch.no_grad():
        shape = network(torch.zeros(1, 3, size, size)).shape
        if len(shape) != 4 or shape[0] != 1 or shape[2] not in (shape[1], shape[3]):
            raise ValueError(
                f"backbone.node={node} gives {tuple(shape)}, not a feature map [B, D, h, w] or "
                "[B, h, w, D] of one square image: choose another node"
            )
        last = shape[1] == shape[2]
        if last and shape[2] == shape[3]:
            last = network(torch.zeros(1, 3, size, 2 * size)).shape[2] != shape[2]
    dim, side = (shape[3], shape[2]) if last else (shape[1], shape[2])
    return FeatureMap(dim, (side, side), last)
