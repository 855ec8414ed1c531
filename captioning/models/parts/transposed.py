"""A finer grid that is learned, before an encoder or none.

B images, L context vectors of D features on a grid of (h, w); behind M doublings L' = 4^M L on (2^M h, 2^M w).
"""

from collections.abc import Callable
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import validated
from captioning.models.parts.encoders import Encoder


class Transposed(Encoder):
    """Transposed convolutions, each of which doubles rows and columns: c_2i+a,2j+b = W_ab c_ij + bias.

    As in Long et al. 2015 they are linear and start as an interpolation, here the nearest (D): every vector becomes 2x2
    of its like. Their kernels do not overlap (D), so that a masked vector reaches no other.

    Args:
        doublings: M.
        behind: an encoder over the L' vectors.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        grid: Grid,
        *,
        doublings: Annotated[int, Interval(ge=1, le=3)] = 1,
        behind: Callable[..., Encoder] | None = None,
    ) -> None:
        super().__init__()
        self.grid = h, w = grid[0], grid[1]
        self.times = 2**doublings
        convolutions = (nn.ConvTranspose2d(d_context, d_context, 2, stride=2) for _ in range(doublings))
        self.convolutions = nn.Sequential(*convolutions)
        self.finer = self.times * h, self.times * w
        self.behind = behind(d_context=d_context, grid=self.finer) if behind else None
        self.d_out = self.behind.d_out if self.behind else d_context

    def forward(self, context: ContextSet) -> ContextSet:
        finer = self._finer(context)
        return self.behind(finer) if self.behind else finer

    def attending(self, context: ContextSet) -> tuple[ContextSet, list[Tensor]]:
        finer = self._finer(context)
        return self.behind.attending(finer) if self.behind else (finer, [])

    def _finer(self, context: ContextSet) -> ContextSet:
        if context.grid != self.grid:
            raise ValueError(f"a grid of {context.grid} came, the model is built for {self.grid}")
        image = self.convolutions(context.vectors.mT.unflatten(2, self.grid))
        mask = context.mask
        if mask is not None:
            rows = mask.unflatten(1, self.grid).repeat_interleave(self.times, dim=1)
            mask = rows.repeat_interleave(self.times, dim=2).flatten(1)
        return ContextSet(image.flatten(2).mT, self.finer, mask)

    def shares(self, alpha: Tensor) -> Tensor:
        if self.behind:
            alpha = self.behind.shares(alpha)
        h, w = self.grid
        return alpha.unflatten(-1, (h, self.times, w, self.times)).sum(dim=(-3, -1)).flatten(-2)

    def initialise(self) -> None:
        for convolution in self.convolutions:
            weight, bias = convolution.parameters()
            with torch.no_grad():
                weight.copy_(torch.eye(len(weight))[:, :, None, None].expand_as(weight))
                bias.zero_()
        if self.behind:
            self.behind.initialise()
