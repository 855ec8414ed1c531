"""The image in a recurrent decoder apart from attention: initial state, and input of the cell.

B images, D features of a context vector on a grid of h x w, K tensors of memory with n features
each, m features of a word's embedding, X features of the injected image.
"""

from abc import ABC, abstractmethod
from itertools import chain, pairwise
from typing import Annotated, Literal

from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Share, Width, between, validated
from captioning.models.parts.numerics import dropout


class StateInit(nn.Module, ABC):
    """Base class, built by keyword with d_context (D), grid, d_hidden (n) and memories (K)."""

    @abstractmethod
    def forward(self, context: ContextSet) -> tuple[Tensor, ...]:
        """K tensors `[B, n]`."""


class Zero(StateInit):
    """Zeros."""

    @validated
    def __init__(self, d_context: int, grid: Grid, d_hidden: int, memories: int):
        super().__init__()
        self.d_hidden, self.memories = d_hidden, memories

    def forward(self, context: ContextSet) -> tuple[Tensor, ...]:
        return (context.vectors.new_zeros(context.vectors.shape[0], self.d_hidden),) * self.memories


class MLPInit(StateInit):
    """f_init: tanh(W_2 tanh(W_1 a_mean + b_1) + b_2) for each tensor.

    It has width n (D) (Xu et al. 2015, section 3.1.2).

    With `layers=1` it is tanh(W a_mean + b) (Bahdanau et al. 2015, appendix A.2.2, of a mean), and
    with `last=linear` the last tanh is left out.
    `pool=flat` replaces the mean by the concatenation of all vectors, masked ones as zero; h w is
    then fixed. `norm` layer-normalises the pooled features, so that photographs unlike the training
    set have no larger effect. Dropout is on the input of the first layer, one draw for all captions
    of an image.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        grid: Grid,
        d_hidden: int,
        memories: int,
        layers: Annotated[int, between(1, 100)] = 2,
        pool: Literal["mean", "flat"] = "mean",
        norm: bool = False,
        dropout: Share = 0.0,
        last: Literal["tanh", "linear"] = "tanh",
    ):
        super().__init__()
        self.dropout, self.flat = dropout, pool == "flat"
        widths = [d_context * (grid[0] * grid[1] if self.flat else 1)] + [d_hidden] * layers
        self.norm = nn.LayerNorm(widths[0]) if norm else nn.Identity()
        self.maps = nn.ModuleList()
        for _ in range(memories):
            parts = ((nn.Linear(*sizes), nn.Tanh()) for sizes in pairwise(widths))
            layers_of_map = [*chain.from_iterable(parts)]
            self.maps.append(nn.Sequential(*layers_of_map[: -1 if last == "linear" else None]))

    def forward(self, context: ContextSet) -> tuple[Tensor, ...]:
        if not self.flat:
            pooled = context.mean()
        elif context.mask is None:
            pooled = context.vectors.flatten(1)
        else:
            pooled = (context.vectors * context.mask[..., None]).flatten(1)
        seen = dropout(self.norm(pooled), self.dropout, self.training)
        return tuple(map_(seen) for map_ in self.maps)


class Last(StateInit):
    """tanh(W b_1), without a bias, for each tensor (Bahdanau et al. 2015, appendix A.2.2).

    b_1, the upper half of the features of the first vector, is the last state of a backward
    recurrent encoder.
    """

    @validated
    def __init__(self, d_context: int, grid: Grid, d_hidden: int, memories: int):
        super().__init__()
        self.width = d_context // 2
        self.maps = nn.ModuleList(
            nn.Linear(d_context - self.width, d_hidden, bias=False) for _ in range(memories)
        )

    def forward(self, context: ContextSet) -> tuple[Tensor, ...]:
        first = context.vectors[:, 0]
        if context.mask is not None:
            index = context.mask.int().argmax(1)[:, None, None]
            first = context.vectors.take_along_dim(index, dim=1)[:, 0]
        return tuple(map_(first[:, self.width :]).tanh() for map_ in self.maps)


class ImageInput(nn.Module, ABC):
    """Base class, built by keyword with d_context (D), d_word (m) and d_hidden (n)."""

    d_image: int  # X
    # True: read only before the first word, as a word (then X = m); otherwise at every step
    once: bool = False

    @abstractmethod
    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        """Return `[B, X]`; `hidden` is h_0 `[B, n]`, before dropout."""


class Mean(ImageInput):
    """x = W_x a_mean + b (D), without any spatial information.

    It is read `once`, before BOS, as in Show and Tell (Vinyals et al. 2015, Eq. 10), or at every
    step (Hui 2017). Without `project`, x = a_mean (Anderson et al. 2018, section 3.2.1). With
    `relu`, x = ReLU(W_x a_mean + b) (Lu et al. 2017, section 2.4).

    Args:
        whole: the features of the vector of the image as a whole that is read in place of a_mean
            (`ContextSet.whole`). None: a_mean.
        width: X with `project`; None: m.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        d_word: int,
        d_hidden: int,
        once: bool = False,
        project: bool = True,
        relu: bool = False,
        whole: Width | None = None,
        width: Width | None = None,
    ):
        super().__init__()
        d_context = whole or d_context
        self.once, self.d_image = once, (width or d_word) if project else d_context
        if once and self.d_image != d_word:
            raise ValueError(
                f"an image of {self.d_image} features cannot be read as a word of {d_word}; set "
                "project=true and width=null"
            )
        self.project = nn.Linear(d_context, self.d_image) if project else nn.Identity()
        self.relu, self.whole = relu, whole

    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        seen = context.mean() if self.whole is None else context.whole
        if seen is None:
            raise ValueError(
                f"model.inject.whole={self.whole} reads a vector of the image as a whole, and the "
                "features have none: set backbone.whole"
            )
        seen = self.project(seen)
        return seen.relu() if self.relu else seen


class State(ImageInput):
    """The bottleneck at every step: W_c c with c = h_0 (Cho et al. 2014; the lecture's "c is often
    h_0").
    """

    @validated
    def __init__(self, d_context: int, d_word: int, d_hidden: int):
        super().__init__()
        self.d_image = d_word
        self.project = nn.Linear(d_hidden, d_word, bias=False)

    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        return self.project(hidden)
