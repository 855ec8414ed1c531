"""No convolutional network: an image as a set of patches of pixels (Dosovitskiy et al. 2021, section 3.1).

B images, D features, a square grid of G rows and columns.
"""

from typing import Annotated

from annotated_types import Interval
from torch import nn

from captioning.backbones.base import Backbone
from captioning.backbones.images import ImageTransform, Resize
from captioning.config.types import PixelSize, Width, validated
from captioning.errors import CaptioningError


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
            resize: how photographs become squares, see `ImageTransform`.

        Raises:
            CaptioningError: `grid` does not divide `size`, or pixels between the patches would not be seen.
            ValueError: a number that is not allowed.
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
