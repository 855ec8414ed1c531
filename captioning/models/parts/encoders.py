"""Encoders: from context sets to context sets, before either decoder.

B images, L context vectors of D features on a grid of (h, w), E = d_model, H heads, A = E / H;
after M steps of upsampling L' = 4^M L on (2^M h, 2^M w).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Count, Share, Width, WidthOrZero, between, validated
from captioning.models.parts.layers import EncoderLayer, Norm, final_norm
from captioning.models.parts.multi_head import Scale, attend, image_mask_and_scale
from captioning.models.parts.norms import BatchNorm
from captioning.models.parts.numerics import Part, dropout
from captioning.models.parts.positions import Positions, sinusoidal, sinusoidal_2d
from captioning.models.parts.relative import Geometry, RelativeTable, biased


class Encoder(Part, ABC):
    """Base class, built by keyword with d_context (D) and grid, (h, w) with L = h w.

    Example:
        A linear map to half the features:

        >>> class Halved(Encoder):
        ...     def __init__(self, d_context, grid):
        ...         super().__init__()
        ...         self.d_out = d_context // 2
        ...         self.map = nn.Linear(d_context, self.d_out)
        ...
        ...     def forward(self, context):
        ...         return replace(context, vectors=self.map(context.vectors))
        >>> image = ContextSet(torch.zeros(1, 6, 8), (2, 3))
        >>> Halved(d_context=8, grid=(2, 3))(image).vectors.shape
        torch.Size([1, 6, 4])
    """

    d_out: int  # features of an output vector
    depth = 1  # number of levels
    memory = 0  # M, slots of memory of each layer
    located = True  # False if the output vectors have no places in the image

    @abstractmethod
    def forward(self, context: ContextSet) -> ContextSet:
        """Return vectors `[B, L, d_out]`, possibly on another grid, and their mask."""

    def forward_with_weights(
        self, context: ContextSet, need_weights: bool = True
    ) -> tuple[list[ContextSet], list[Tensor]]:
        """All levels, and if needed weights of each layer `[B, H, L, L + M]`, M of memory."""
        # (D) an encoder without weights is assumed to keep every vector in its place
        return [self(context)], []

    def attention_shares(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        """`memory`: its share of all weights, the same for all `tokens` `[B, N, C]`."""
        if not self.memory:
            return {}
        levels, weights = self.forward_with_weights(context)
        shares = [alpha[..., -self.memory :].sum(-1).mean(1) for alpha in weights]  # [B, L]
        memory = replace(levels[-1], vectors=torch.stack(shares, dim=-1)).mean().mean(-1)
        return {"memory": memory[:, None, None].expand(tokens.shape)}

    def to_input_grid(self, alpha: Tensor) -> Tensor:
        """Weights over the output vectors as weights over the L input vectors, for figures."""
        return alpha


class LayeredEncoder(Encoder):
    """Base class of encoders that implement `forward_with_weights` in place of `forward`."""

    def forward(self, context: ContextSet) -> ContextSet:
        return self.forward_with_weights(context, need_weights=False)[0][-1]


class Unchanged(Encoder):
    """The context set itself, of a model without an encoder."""

    def __init__(self, d_context: int, grid: Grid):
        super().__init__()
        self.d_out = d_context

    def forward(self, context: ContextSet) -> ContextSet:
        return context


class SelfAttentionLayers(LayeredEncoder):
    """Features and positions, then self-attention layers (Springenberg et al. 2018, section 2.1).

    `positions`: `1d` encodes them in row order, `2d` rows and columns separately. Dropout is on the
    features and on the attention weights.

    Args:
        embed: how features enter: `linear`, a projection from D to E only if they differ; `relu`,
            ReLU(W c + b); `relu_norm`, the same layer-normalised.
        d_ff: of feed-forward; 0: no feed-forward.
        norm: the position of layer normalisation in each sublayer; `pre` and `pre_deviation` add a
            final one.
        relative: biases of `captioning.models.parts.relative`, of each layer or `shared` by all.
        memory: slots of each layer (Cornia et al. 2020).
        gated: attention on attention in place of W_O (Huang et al. 2019).
        biases: of queries, keys, values and outputs of attention.
        last_norm: False leaves out the final one of `pre` (Mokady et al. 2021).
        batch_norm: of the D features, the `input`, or of `both` these and what `embed` makes of
            them.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        grid: Grid,
        *,
        d_model: Width = 512,
        heads: Count = 8,
        d_ff: WidthOrZero = 1024,
        layers: Annotated[int, between(0, 1000)] = 2,
        dropout: Share = 0.1,
        scale: Scale = "sqrt_len_d",
        positions: Literal["1d", "2d", "learned", "none"] = "1d",
        norm: Norm = "post",
        embed: Literal["linear", "relu", "relu_norm"] = "linear",
        relative: Literal["none", "geometry", "table"] = "none",
        shared: bool = False,
        memory: WidthOrZero = 0,
        gated: bool = False,
        biases: bool = False,
        last_norm: bool = True,
        batch_norm: Literal["none", "input", "both"] = "none",
    ):
        super().__init__()
        self.d_out, self.d_attn, self.depth = d_model, d_model // heads, max(1, layers)
        self.memory = memory if layers else 0
        self.scale, self.dropout, self.embed = scale, dropout, embed
        kept = embed == "linear" and d_context == d_model
        self.project = nn.Identity() if kept else nn.Linear(d_context, d_model)
        self.embed_norm = nn.LayerNorm(d_model) if embed == "relu_norm" else nn.Identity()
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, heads, d_ff, dropout, norm, memory, gated, biases)
            for _ in range(layers)
        )
        tables = 0 if relative == "none" else min(layers, 1) if shared else layers
        kind = Geometry if relative == "geometry" else RelativeTable
        self.relative = nn.ModuleList(kind(grid, heads) for _ in range(tables))
        self.norm = final_norm(d_model, norm) if last_norm else nn.Identity()
        widths = {"none": [], "input": [d_context], "both": [d_context, d_model]}[batch_norm]
        self.batch_norms = nn.ModuleList(map(BatchNorm, widths))
        if positions == "2d":
            table = sinusoidal_2d(grid, d_model)
        else:  # in row order
            table = sinusoidal(grid[0] * grid[1], d_model)
        self.positions = Positions(table, positions == "learned") if positions != "none" else None

    def forward_with_weights(
        self, context: ContextSet, need_weights: bool = True
    ) -> tuple[list[ContextSet], list[Tensor]]:
        x = context.vectors
        for norm in self.batch_norms[:1]:
            x = norm(x, context.mask)
        x = self.project(x)
        if self.embed != "linear":
            x = self.embed_norm(x.relu())
        if self.positions:  # which begin anew in each image
            x = self.positions(x.unflatten(1, (context.images, -1))).flatten(1, 2)
        x = dropout(x, self.dropout, self.training)
        for norm in self.batch_norms[1:]:
            x = norm(x, context.mask)
        scale, allowed = image_mask_and_scale(context, self.scale, self.d_attn)
        masks = [biased(bias, context, allowed, x.dtype) for bias in self.relative]
        levels, maps = [], []
        for layer, mask in zip(self.layers, cycle(masks or [allowed]), strict=False):
            x, _, weights = layer(x, scale, mask, need_weights)
            levels.append(x)
            maps += [] if weights is None else [weights]
        return [replace(context, vectors=self.norm(level)) for level in levels or [x]], maps


class Pooled(Encoder):
    """`prefix` vectors W_2 tanh(W_1 mean(c) + b_1) + b_2 (Mokady et al. 2021, "ClipCap", MLP)."""

    located = False

    @validated
    def __init__(self, d_context: int, grid: Grid, *, d_model: Width = 512, prefix: Count = 10):
        super().__init__()
        self.d_out, self.prefix = d_model, prefix
        width = prefix * d_model
        self.map = nn.Sequential(
            nn.Linear(d_context, width // 2), nn.Tanh(), nn.Linear(width // 2, width)
        )

    def forward(self, context: ContextSet) -> ContextSet:
        vectors = self.map(context.mean()).unflatten(-1, (self.prefix, -1))
        return replace(context, vectors=vectors, grid=(1, self.prefix), mask=None)


class LearnedQueries(Encoder):
    """Outputs of `prefix` learned vectors in self-attention with the image (Mokady et al. 2021).

    `encoder` is an encoder of the image and the vectors as one set, without positions of its own.
    Each image vector is mapped to `expand` vectors of that set.
    """

    located = False

    @validated
    def __init__(
        self,
        d_context: int,
        grid: Grid,
        *,
        encoder: Callable[..., Encoder],
        d_model: Width = 512,
        prefix: Count = 10,
        expand: Count = 1,
    ):
        super().__init__()
        self.expand = expand
        self.project = nn.Linear(d_context, expand * d_model)
        self.queries = nn.Parameter(torch.empty(prefix, d_model))
        self.inner = encoder(d_context=d_model, grid=(1, expand * grid[0] * grid[1] + prefix))
        self.d_out = self.inner.d_out

    def initialise(self) -> None:
        nn.init.normal_(self.queries, std=self.queries.shape[1] ** -0.5)

    def forward(self, context: ContextSet) -> ContextSet:
        prefix = len(self.queries)
        own = self.queries.to(context.vectors.dtype).expand(context.vectors.shape[0], -1, -1)
        image = self.project(context.vectors).unflatten(2, (self.expand, -1)).flatten(1, 2)
        vectors = torch.cat((image, own), dim=1)
        mask = context.mask
        if mask is not None:
            mask = mask.repeat_interleave(self.expand, dim=1)
            mask = nn.functional.pad(mask, (0, prefix), value=True)
        vectors = self.inner(ContextSet(vectors, (1, vectors.shape[1]), mask)).vectors
        return replace(context, vectors=vectors[:, -prefix:], grid=(1, prefix), mask=None)


class SelfAttentionBlock(Encoder):
    """y = x + gamma W_o (A v), A = softmax(q . k), gamma = 0 at first (Zhang et al. 2019, Eq. 1-3).

    q and k have D / 8 features, v has D / 2 (D). At first the output is the input, to the bit.
    """

    @validated
    def __init__(self, d_context: int, grid: Grid):
        super().__init__()
        self.d_out = d_context
        narrow = max(1, d_context // 8)
        self.widths = narrow, narrow, max(1, d_context // 2)
        self.project = nn.Linear(d_context, sum(self.widths), bias=False)
        self.output = nn.Linear(self.widths[2], d_context, bias=False)  # W_o
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, context: ContextSet) -> ContextSet:
        query, key, value = (
            x[:, None] for x in self.project(context.vectors).split(self.widths, dim=-1)
        )
        mask = None if context.mask is None else context.mask[:, None, None, :]
        attended, _ = attend(query, key, value, 1.0, mask)
        return replace(context, vectors=context.vectors + self.gamma * self.output(attended))


class Transposed(LayeredEncoder):
    """Transposed convolutions that double rows and columns: c_2i+a,2j+b = W_ab c_ij + bias.

    As in Long et al. 2015 they begin as interpolation, here of the nearest (D). Kernels do not
    overlap (D), so that masked vectors affect no others. `encoder` is one of the L' vectors.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        grid: Grid,
        *,
        upsample_steps: Annotated[int, between(1, 3)] = 1,
        encoder: Callable[..., Encoder] | None = None,
    ):
        super().__init__()
        self.grid, self.times = grid, 2**upsample_steps
        self.convolutions = nn.Sequential(
            *(nn.ConvTranspose2d(d_context, d_context, 2, stride=2) for _ in range(upsample_steps))
        )
        self.finer = self.times * grid[0], self.times * grid[1]
        self.inner = (encoder or Unchanged)(d_context=d_context, grid=self.finer)
        self.d_out, self.depth, self.memory = self.inner.d_out, self.inner.depth, self.inner.memory

    def initialise(self) -> None:
        for convolution in self.convolutions:
            weight, bias = convolution.parameters()
            nn.init.zeros_(bias)
            with torch.no_grad():
                weight.copy_(torch.eye(len(weight))[:, :, None, None].expand_as(weight))

    def forward_with_weights(
        self, context: ContextSet, need_weights: bool = True
    ) -> tuple[list[ContextSet], list[Tensor]]:
        if context.grid != self.grid:
            raise ValueError(f"got a grid of {context.grid}; the model is built for {self.grid}")
        # several images as one that is higher, since kernels do not overlap
        image = self.convolutions(context.vectors.mT.unflatten(2, (-1, self.grid[1])))
        mask = context.mask
        if mask is not None:
            rows = mask.unflatten(1, (-1, self.grid[1])).repeat_interleave(self.times, dim=1)
            mask = rows.repeat_interleave(self.times, dim=2).flatten(1)
        finer = replace(context, vectors=image.flatten(2).mT, grid=self.finer, mask=mask)
        return self.inner.forward_with_weights(finer, need_weights)

    def to_input_grid(self, alpha: Tensor) -> Tensor:
        cells = -1, self.times, self.grid[1], self.times
        alpha = self.inner.to_input_grid(alpha).unflatten(-1, cells)
        return alpha.sum((-3, -1)).flatten(-2)
