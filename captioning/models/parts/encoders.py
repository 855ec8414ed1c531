"""Encoders: from context sets to context sets, before either decoder.

B images, L context vectors of D features on a grid of (h, w), E = d_feat, H heads, A = E / H; after M doublings
L' = 4^M L on (2^M h, 2^M w).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, cast

import torch
from annotated_types import Interval
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Count, Share, Width, validated
from captioning.models.parts.layers import EncoderLayer, Norm, Scale, attend, over_image
from captioning.models.parts.numerics import Part, dropout
from captioning.models.parts.positions import ImagePositions, Positions, resized, sinusoidal, sinusoidal_2d


class Encoder(Part, ABC):
    """Base class, built by keyword with d_context (D) and grid, (h, w) with L = h w; outputs `d_out` features."""

    d_out: int

    @abstractmethod
    def forward(self, context: ContextSet) -> ContextSet:
        """Return vectors `[B, L, d_out]`, possibly on another grid, and their mask."""

    def attending(self, context: ContextSet) -> tuple[ContextSet, list[Tensor]]:
        """Like `forward`, with the weights of each layer over the output vectors, `[B, H, L, L]` each."""
        # (D) an encoder without weights is assumed to keep every vector in its place
        return self(context), []

    def shares(self, alpha: Tensor) -> Tensor:
        """Map weights over the output vectors to weights over the L input vectors, `[..., L]`, for figures."""
        return alpha


class SelfAttentionLayers(Encoder):
    """Source encoding (Springenberg et al. 2018, section 2.1): features and positions, then N self-attention layers.

    A linear projection from D to E is learnt only if they differ. Dropout is on the features and on the attention
    weights. `positions`: `1d` encodes the L positions in row order, `2d` rows and columns separately; `learned` ones
    are resized for other grids. `norm` is the position of layer normalisation in each sublayer; `pre` adds a final one.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        grid: Grid,
        *,
        d_feat: Width = 512,
        heads: Count = 8,
        d_hidden: Width = 1024,
        layers: Annotated[int, Interval(ge=0, le=1000)] = 2,
        dropout: Share = 0.1,
        scale: Scale = "sqrt_len_d",
        positions: ImagePositions = "1d",
        norm: Norm = "post",
    ) -> None:
        super().__init__()
        self.d_out, self.d_attn = d_feat, d_feat // heads
        self.scale: Scale = scale
        self.dropout = dropout
        self.grid = grid[0], grid[1]
        self.project = nn.Linear(d_context, d_feat) if d_context != d_feat else nn.Identity()
        stack = (EncoderLayer(d_feat, heads, d_hidden, dropout, norm) for _ in range(layers))
        self.layers = cast(Sequence[EncoderLayer], nn.ModuleList(stack))
        self.norm = nn.LayerNorm(d_feat) if norm == "pre" else nn.Identity()
        table = sinusoidal_2d(grid, d_feat) if positions == "2d" else sinusoidal(math.prod(grid), d_feat)
        self.positions = Positions(table, positions == "learned") if positions != "none" else None

    def forward(self, context: ContextSet) -> ContextSet:
        return self._encoded(context, need_weights=False)[0]

    def attending(self, context: ContextSet) -> tuple[ContextSet, list[Tensor]]:
        return self._encoded(context, need_weights=True)

    def _encoded(self, context: ContextSet, need_weights: bool) -> tuple[ContextSet, list[Tensor]]:
        x = dropout(self._placed(self.project(context.vectors), context.grid), self.dropout, self.training)
        tau, mask = over_image(context, self.scale, self.d_attn)
        maps = []
        for layer in self.layers:
            x, weights = layer(x, tau, mask, need_weights)
            maps += [] if weights is None else [weights]
        return replace(context, vectors=self.norm(x)), maps

    def _placed(self, x: Tensor, grid: Grid) -> Tensor:
        if self.positions is not None and self.positions.learned and grid != self.grid:
            return x + resized(self.positions.table, self.grid, grid).to(x.dtype)
        if x.shape[1] != math.prod(self.grid):
            raise ValueError(f"got {x.shape[1]} context vectors; the model is built for {math.prod(self.grid)}")
        return x if self.positions is None else self.positions(x)


class SelfAttentionBlock(Encoder):
    """y = x + gamma W_o (A v), A = softmax(q . k) over all places, gamma = 0 at first (Zhang et al. 2019, Eq. 1-3).

    The maps are 1 x 1 convolutions, which are linear layers on vectors; q and k have D / 8 features, v has D / 2 (D).
    There is no scale. Initially the output equals the input, to the bit.
    """

    @validated
    def __init__(self, d_context: int, grid: Grid) -> None:
        super().__init__()
        self.d_out = d_context
        self.widths = max(1, d_context // 8), max(1, d_context // 8), max(1, d_context // 2)
        self.project = nn.Linear(d_context, sum(self.widths), bias=False)
        self.output = nn.Linear(self.widths[2], d_context, bias=False)  # W_o
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, context: ContextSet) -> ContextSet:
        query, key, value = (x[:, None] for x in self.project(context.vectors).split(self.widths, dim=-1))
        mask = None if context.mask is None else context.mask[:, None, None, :]
        attended, _ = attend(query, key, value, 1.0, mask)
        return replace(context, vectors=context.vectors + self.gamma * self.output(attended))


class Transposed(Encoder):
    """Transposed convolutions that double rows and columns: c_2i+a,2j+b = W_ab c_ij + bias.

    As in Long et al. 2015 they are linear and initialised to interpolation, here nearest-neighbour (D): every vector
    becomes 2x2 copies. Their kernels do not overlap (D), so that masked vectors affect no others.
    `behind` is an encoder of the L' vectors.
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

    def initialise(self) -> None:
        for convolution in self.convolutions:
            weight, bias = convolution.parameters()
            nn.init.zeros_(bias)
            with torch.no_grad():
                weight.copy_(torch.eye(len(weight))[:, :, None, None].expand_as(weight))

    def forward(self, context: ContextSet) -> ContextSet:
        finer = self._finer(context)
        return self.behind(finer) if self.behind else finer

    def attending(self, context: ContextSet) -> tuple[ContextSet, list[Tensor]]:
        finer = self._finer(context)
        return self.behind.attending(finer) if self.behind else (finer, [])

    def _finer(self, context: ContextSet) -> ContextSet:
        if context.grid != self.grid:
            raise ValueError(f"got a grid of {context.grid}; the model is built for {self.grid}")
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
