"""Attention scores between the locations of an image and the state of a caption.

B images, N captions per image, L context vectors c_i of D features on a grid of (h, w), queries h
of n features, A attention features (`d_attention`; None is D), H heads.

With `heads`, the A features and those of the values are divided between H scores, as in Vaswani et
al. 2017, section 3.2.2 (the additive ones likewise (D)).
"""

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Count, Width, between, validated
from captioning.models.parts.additive import Keys, additive_scores
from captioning.models.parts.norms import LayerNorm
from captioning.models.parts.numerics import Part
from captioning.models.parts.steps import StepLinear


class Score(Part, ABC):
    """Base class of scores e_ti; a custom score implements `keys` and `forward`.

    Built by keyword with d_context (D), d_query (n) and grid, (h, w) with L = h w.

    Example:
        h . W c_i, the "general" score of Luong et al. 2015:

        >>> class Bilinear(Score):
        ...     def __init__(self, d_context, d_query, grid):
        ...         super().__init__(d_context)
        ...         self.map = nn.Linear(d_context, d_query, bias=False)
        ...
        ...     def keys(self, context):
        ...         return self.map(context.vectors)
        ...
        ...     def forward(self, keys, query, past=None):
        ...         return query @ keys.mT
        >>> score = Bilinear(d_context=8, d_query=4, grid=(2, 3))
        >>> keys = score.keys(ContextSet(torch.zeros(1, 6, 8), (2, 3)))
        >>> score(keys, torch.zeros(1, 5, 4)).shape
        torch.Size([1, 5, 6])
    """

    needs_previous_weights = False  # True if `forward` uses the weights of the previous step

    def __init__(self, d_value: int, heads: int = 1, d_attention: int | None = None):
        super().__init__()
        for width in (d_value, d_attention or d_value):
            if width % heads:
                raise ValueError(
                    f"heads is {heads}; it must divide {width}, the features of values and of "
                    "attention"
                )
        self.d_value, self.heads = d_value, heads  # number of features of `values`

    @abstractmethod
    def keys(self, context: ContextSet) -> Any:
        """Precompute the inputs from the images, once for all captions."""

    def values(self, vectors: Tensor) -> Tensor:
        """`[B, L, d_value]`: the vectors to average by the weights."""
        return vectors

    @abstractmethod
    def forward(self, keys: Any, query: Tensor, past: Tensor | None = None) -> Tensor:
        """Scores `[B, N, L]`, or `[B, N, H, L]` of several heads, for queries `[B, N, n]`.

        `past` are the previous weights `[B, N, L]`, averaged over heads, None at the first step.

        Attention masks locations afterwards.
        """


class AdditiveScore(Score):
    """Additive: w . tanh(W_a c_i + W_h h + b) (Xu et al. 2015, Eq. 4; Bahdanau et al. 2015), with A
    = D as in Xu et al.'s code (D).

    `activation=relu` replaces tanh (the code of sgrvinod's tutorial).
    """

    @validated
    def __init__(
        self,
        d_context: int,
        d_query: int,
        grid: Grid,
        d_attention: Width | None = None,
        heads: Count = 1,
        activation: Literal["tanh", "relu"] = "tanh",
    ):
        d_attention = d_attention or d_context
        super().__init__(d_context, heads, d_attention)
        self.relu = activation == "relu"
        self.context = nn.Linear(d_context, d_attention)  # W_a, b
        self.query = StepLinear(d_query, d_attention)  # W_h
        self.weight = nn.Parameter(torch.empty(d_attention))  # w

    def initialise(self) -> None:
        bound = len(self.weight) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def keys(self, context: ContextSet) -> Any:
        return Keys.of(self.context(context.vectors))

    def forward(self, keys: Any, query: Tensor, past: Tensor | None = None) -> Tensor:
        return additive_scores(
            keys, self.query(query), self.weight, heads=self.heads, relu=self.relu
        )


class Location(AdditiveScore):
    """Location-aware: w . tanh(W_a c_i + W_h h + U f_i + b).

    Chorowski et al. 2015; Cho et al. 2015, Eq. 23.

    f_i = sum_k v_{k-i} alpha_k of the previous step, with d = `filters` features: a convolution of
    `kernel_size` taps, an odd number, along each axis longer than 1, zero outside (D).
    alpha_0 is `even` (D), or all on the first vector, `start`, as in the authors' code.
    """

    needs_previous_weights = True

    @validated
    def __init__(
        self,
        d_context: int,
        d_query: int,
        grid: Grid,
        d_attention: Width | None = None,
        filters: Width = 10,
        kernel_size: Annotated[int, between(1, 1001)] = 5,
        heads: Count = 1,
        first: Literal["even", "start"] = "even",
    ):
        super().__init__(d_context, d_query, grid, d_attention, heads)
        self.first = first
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size is {kernel_size}; it must be odd, to have a middle")
        taps = [kernel_size if size > 1 else 1 for size in grid]
        self.filters = nn.Parameter(torch.empty(filters, 1, *taps))  # v
        self.location = nn.Linear(filters, len(self.weight), bias=False)  # U

    def initialise(self) -> None:
        super().initialise()
        bound = self.filters[0].numel() ** -0.5
        nn.init.uniform_(self.filters, -bound, bound)

    def keys(self, context: ContextSet) -> Any:
        """W_a c + b, alpha_0 `[B, L]`, and the grid."""
        vectors, mask = context.vectors, context.mask
        real = torch.ones_like(vectors[..., 0]) if mask is None else mask.to(vectors.dtype)
        chosen = real if self.first == "even" else real * (real.cumsum(1) == 1)
        return super().keys(context), chosen / chosen.sum(1, keepdim=True), context.grid

    def forward(self, keys: Any, query: Tensor, past: Tensor | None = None) -> Tensor:
        content, first, grid = keys
        alpha = (
            first[:, None].expand(-1, query.shape[1], -1) if past is None else past.to(first.dtype)
        )
        maps = nn.functional.conv2d(alpha.reshape(-1, 1, *grid), self.filters, padding="same")
        seen = maps.flatten(2).mT.reshape(*alpha.shape, -1)  # f, `[B, N, L, d]`
        return additive_scores(
            content, self.query(query), self.weight, seen, self.location.weight, self.heads
        )


class Uniform(Score):
    """The same score everywhere: z_t is the mean of the unmasked vectors (D).

    A control for the other scores: it differs from them only in where the captioner looks.
    """

    @validated
    def __init__(self, d_context: int, d_query: int, grid: Grid):
        super().__init__(d_context)

    def keys(self, context: ContextSet) -> Tensor:
        return context.vectors.new_zeros(context.vectors.shape[0], 1, context.vectors.shape[1])

    def forward(self, keys: Tensor, query: Tensor, past: Tensor | None = None) -> Tensor:
        return keys.expand(-1, query.shape[1], -1)


class LinearScore(Score):
    """w_c . c_i + w_h . h + b (the lecture's "f_att is a linear layer").

    w_h . h is the same for every location and cancels in the softmax, like b, so that the weights
    do not depend on the state: static attention, with one map for the whole caption.
    """

    @validated
    def __init__(
        self, d_context: int, d_query: int, grid: Grid, *, heads: Count = 1, bias: bool = True
    ):
        super().__init__(d_context, heads)
        self.context = nn.Linear(d_context, heads, bias=bias)  # w_c, b
        self.query = nn.Linear(d_query, heads, bias=False)  # w_h

    def keys(self, context: ContextSet) -> Tensor:
        keys = self.context(context.vectors).mT
        return keys if self.heads == 1 else keys[:, None]

    def forward(self, keys: Tensor, query: Tensor, past: Tensor | None = None) -> Tensor:
        query = self.query(query)
        return keys + (query if self.heads == 1 else query[..., None])


class SingleLayer(LinearScore):
    """tanh(W_x c_i + W_c h), a scalar without a further weight (Hui 2017).

    It lies in (-1, 1), so that a weight is at most e^2 / (e^2 + L - 1), 3.7 % for 196 locations: it
    cannot focus. `learned_scale` multiplies it by exp(s), s = 0 at first, unlike the source (D).
    """

    @validated
    def __init__(
        self,
        d_context: int,
        d_query: int,
        grid: Grid,
        learned_scale: bool = False,
        heads: Count = 1,
    ):
        super().__init__(d_context, d_query, grid, heads=heads, bias=False)
        self.log_scale = nn.Parameter(torch.zeros(())) if learned_scale else None

    def forward(self, keys: Tensor, query: Tensor, past: Tensor | None = None) -> Tensor:
        scores = super().forward(keys, query).tanh()
        return scores if self.log_scale is None else self.log_scale.exp() * scores


class Dot(Score):
    """h . c_i, or with `project`, (W_q h) . c_i if n differs from D (D).

    `scaled` divides by sqrt(D / H), since wide vectors make the softmax peak (Vaswani et al. 2017,
    section 3.2.1).
    """

    @validated
    def __init__(
        self,
        d_context: int,
        d_query: int,
        grid: Grid,
        scaled: bool = False,
        project: bool = True,
        heads: Count = 1,
    ):
        super().__init__(d_context, heads)
        if d_context != d_query and not project:
            raise ValueError(
                f"a dot product needs equal widths: a context vector has {d_context} features and "
                f"a query {d_query}; set project=true or the width of the cell to {d_context}"
            )
        self.query = (
            nn.Linear(d_query, d_context, bias=False) if d_context != d_query else nn.Identity()
        )
        self.scale = math.sqrt(d_context // heads) if scaled else 1.0

    def keys(self, context: ContextSet) -> Tensor:
        return per_head(context.vectors, self.heads)

    def forward(self, keys: Tensor, query: Tensor, past: Tensor | None = None) -> Tensor:
        return _products(self.query(query) / self.scale, keys, self.heads)


class ProjectedDot(Score):
    """Scaled dot product of projections: q . k_i / sqrt(A / H).

    q = W_q h, k_i = W_k c_i and, for c_i, v_i = W_v c_i (Vaswani et al. 2017, Eq. 1).

    `norm` layer-normalises h (Huang et al. 2019, "AoANet"), by `deviation` as in their code, see
    `LayerNorm`; `biases` are those of the three projections.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        d_query: int,
        grid: Grid,
        d_attention: Width | None = None,
        heads: Count = 1,
        norm: bool | Literal["deviation"] = False,
        biases: bool = False,
    ):
        super().__init__(d_attention or d_context, heads)
        self.norm = LayerNorm(d_query, norm == "deviation") if norm else nn.Identity()
        self.query = nn.Linear(d_query, self.d_value, bias=biases)  # W_q
        self.key = nn.Linear(d_context, self.d_value, bias=biases)  # W_k
        self.value = nn.Linear(d_context, self.d_value, bias=biases)  # W_v

    def keys(self, context: ContextSet) -> Tensor:
        return per_head(self.key(context.vectors), self.heads)

    def values(self, vectors: Tensor) -> Tensor:
        return self.value(vectors)

    def forward(self, keys: Tensor, query: Tensor, past: Tensor | None = None) -> Tensor:
        scaled = self.query(self.norm(query)) / math.sqrt(self.d_value // self.heads)
        return _products(scaled, keys, self.heads)


def per_head(x: Tensor, heads: int) -> Tensor:
    """`[B, S, E]` to `[B, H, S, E / H]`; unchanged for one head."""
    return x if heads == 1 else x.unflatten(-1, (heads, -1)).transpose(1, 2).contiguous()


def _products(query: Tensor, keys: Tensor, heads: int) -> Tensor:
    products = per_head(query, heads) @ keys.mT
    return products if heads == 1 else products.transpose(1, 2)
