"""Backbones that are trained from scratch with the captioner: a small convolutional network, and patches of pixels.

B images, D features, a square grid of G rows and columns.
"""

import itertools
import math
from typing import Annotated

from annotated_types import Interval
from torch import nn

from captioning.backbones.base import Backbone
from captioning.backbones.images import ImageTransform, Resize
from captioning.config.types import PixelSize, Width, validated
from captioning.errors import CaptioningError


class SmallCNN(Backbone):
    """3x3 convolutions with stride 2 until the grid is reached, then one more at the grid's resolution.

    Each is followed by a normalisation over one image's whole feature map (GroupNorm with one group), which leaves
    images independent of the batch they come in: N processes compute what one would. The last has no ReLU, so that
    the features start with mean 0 and root mean square 1. At the default size a context vector sees 31x31 pixels.
    """

    @validated
    def __init__(
        self,
        dim: Width = 128,
        size: PixelSize = 112,
        grid: Annotated[int, Interval(ge=1, le=512)] = 14,
        trainable: bool = True,
        resize: Resize = "squash",
    ) -> None:
        """Build the network with random weights.

        Args:
            dim: D.
            size: side of the square images in pixels, `grid` times a power of two, at least `2 * grid`.
            grid: G.
            trainable: False freezes the random weights.
            resize: see `ImageTransform`.
        """
        stages = round(math.log2(size / grid))
        if stages < 1 or size != grid << stages:
            raise CaptioningError(
                f"backbone.size={size} cannot be halved down to backbone.grid={grid}; "
                f"with this grid it can be {grid * 4}, {grid * 8}, {grid * 16}, ..."
            )
        # Narrow where the map is large: most of the work is then the last layer's, on G x G positions.
        widths = [3, *(max(8, dim >> (stages - stage)) for stage in range(stages)), dim]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            stride = 1 if len(layers) == 3 * stages else 2
            layers += [nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.GroupNorm(1, after), nn.ReLU()]
        super().__init__(
            f"SmallCNN dim={dim} grid={grid}",
            nn.Sequential(*layers[:-1]),
            dim,
            (grid, grid),
            ImageTransform(size, resize=resize),
            trainable,
        )


class Patches(Backbone):
    """c_i = W patch_i + b: one matrix for all patches, each the pixels around the middle of a cell of the grid.

    The stride is size / G pixels. Patches as large lie side by side; larger ones overlap, and reach beyond the edges
    over the mean colour. The features start with root mean square 1 for pixels of mean 0 and variance 1.
    """

    @validated
    def __init__(
        self,
        dim: Width = 128,
        size: PixelSize = 112,
        grid: Annotated[int, Interval(ge=1, le=512)] = 14,
        patch: PixelSize | None = None,
        trainable: bool = True,
        resize: Resize = "squash",
    ) -> None:
        """Build the matrix with random numbers.

        Args:
            dim: D.
            size: side of the square images in pixels, a multiple of `grid`.
            grid: G.
            patch: side of the square patches in pixels; None: the stride.
            trainable: False freezes the random numbers.
            resize: see `ImageTransform`.
        """
        stride, rest = divmod(size, grid)
        if rest:
            near = ", ".join(str(side) for side in (size - rest, size - rest + grid) if side)
            raise CaptioningError(
                f"backbone.size={size} is not a multiple of backbone.grid={grid}; with this grid it can be {near}"
            )
        patch = stride if patch is None else patch
        if patch < stride:
            raise CaptioningError(
                f"backbone.patch={patch} would leave pixels between the patches unseen; with backbone.size={size} and "
                f"backbone.grid={grid} it must be at least {stride}"
            )
        before, after = (patch - stride) // 2, (patch - stride + 1) // 2
        embedding = nn.Conv2d(3, dim, patch, stride)
        nn.init.normal_(embedding.weight, std=embedding.weight[0].numel() ** -0.5)
        super().__init__(
            f"Patches patch={patch} grid={grid} dim={dim}",
            nn.Sequential(nn.ZeroPad2d((before, after, before, after)), embedding),
            dim,
            (grid, grid),
            ImageTransform(size, resize=resize),
            trainable,
        )
