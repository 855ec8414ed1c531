"""Backbones trained from scratch with the captioner: a small CNN, and patches of pixels.

B images, D features, a square grid of G rows and columns; images are squares of `size` pixels.
"""

import itertools
import math
from typing import Annotated

from torch import nn

from captioning.backbones.base import Backbone
from captioning.backbones.images import FULL_RANGE, ImageTransform, Resize
from captioning.config.types import PixelRange, PixelSize, Width, between, validated

Cells = Annotated[int, between(1, 512)]


class SmallCNN(Backbone):
    """3x3 convolutions with stride 2 down to the grid, then one at the grid's resolution.

    Each is followed by a normalisation over the feature map of an image (GroupNorm with one group),
    so that images are independent of their batch and N processes equal one. The last has no ReLU,
    so that the features start with mean 0 and root mean square 1. At the default size the receptive
    field of a context vector is 31x31 pixels.
    """

    @validated
    def __init__(
        self,
        dim: Width = 128,
        size: PixelSize = 112,
        grid: Cells = 14,
        trainable: bool = True,
        resize: Resize = "stretch",
        pixel_range: PixelRange = FULL_RANGE,
    ):
        stages = round(math.log2(size / grid))
        if stages < 1 or size != grid << stages:
            raise ValueError(
                f"backbone.size={size} cannot be halved down to backbone.grid={grid}; "
                f"with this grid it can be {grid * 4}, {grid * 8}, {grid * 16}, ..."
            )
        # Few channels for large maps, so that most of the work is in the last layer, on G x G
        # positions.
        widths = [3, *(max(8, dim >> (stages - stage)) for stage in range(stages)), dim]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            stride = 1 if len(layers) == 3 * stages else 2
            layers += [
                nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
                nn.GroupNorm(1, after),
                nn.ReLU(),
            ]
        settings = f"SmallCNN dim={dim} grid={grid}"
        transform = ImageTransform(size, resize=resize, pixel_range=pixel_range)
        super().__init__(
            settings, nn.Sequential(*layers[:-1]), dim, (grid, grid), transform, trainable
        )


class Patches(Backbone):
    """c_i = W patch_i + b: one matrix for all patches, which are centred on the grid cells.

    The stride is size / G pixels. Patches of that size (None) do not overlap; larger ones overlap,
    and extend beyond the edges into the mean colour. The features start with root mean square 1 for
    pixels of mean 0 and variance 1.
    """

    @validated
    def __init__(
        self,
        dim: Width = 128,
        size: PixelSize = 112,
        grid: Cells = 14,
        patch: PixelSize | None = None,
        trainable: bool = True,
        resize: Resize = "stretch",
        pixel_range: PixelRange = FULL_RANGE,
    ):
        stride, rest = divmod(size, grid)
        patch = stride if patch is None else patch
        if rest or patch < stride:
            problem = (
                f"size={size} is not a multiple of backbone.grid"
                if rest
                else f"patch={patch} is less than size"
            )
            raise ValueError(f"backbone.{problem}; it would leave pixels unseen")
        before, after = (patch - stride) // 2, (patch - stride + 1) // 2
        embedding = nn.Conv2d(3, dim, patch, stride)
        nn.init.normal_(embedding.weight, std=embedding.weight[0].numel() ** -0.5)
        network = nn.Sequential(nn.ZeroPad2d((before, after, before, after)), embedding)
        settings = f"Patches patch={patch} grid={grid} dim={dim}"
        transform = ImageTransform(size, resize=resize, pixel_range=pixel_range)
        super().__init__(settings, network, dim, (grid, grid), transform, trainable)
