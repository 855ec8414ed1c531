"""Initial states: what the memory of a recurrent decoder is before the first word.

B images, D features of a context vector on a grid of h x w, K tensors of memory with n features each.
"""

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor, nn

from captioning.backbones.context import ContextSet


class Initial(nn.Module, ABC):
    """It is built by keyword with d_context, grid, d_hidden (n) and memories (K)."""

    @abstractmethod
    def forward(self, context: ContextSet) -> tuple[Tensor, ...]:
        """K tensors `[B, n]`."""


class Zero(Initial):
    """Zeros."""

    def __init__(self, d_context: int, grid: tuple[int, int], d_hidden: int, memories: int) -> None:
        super().__init__()
        self.d_hidden, self.memories = d_hidden, memories

    def forward(self, context: ContextSet) -> tuple[Tensor, ...]:
        """See `Initial.forward`."""
        return (context.vectors.new_zeros(len(context.vectors), self.d_hidden),) * self.memories


class Layer(Initial):
    """tanh(W a_mean + b) for each tensor (Bahdanau et al. 2015, appendix A.2.2, of a mean)."""

    def __init__(self, d_context: int, grid: tuple[int, int], d_hidden: int, memories: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Sequential(nn.Linear(d_context, d_hidden), nn.Tanh()) for _ in range(memories))

    def forward(self, context: ContextSet) -> tuple[Tensor, ...]:
        """See `Initial.forward`."""
        mean = context.mean()
        return tuple(map_(mean) for map_ in self.maps)


class MLP(Initial):
    """f_init: tanh(W_2 tanh(W_1 a_mean + b_1) + b_2) of width n (D), for each tensor (Xu et al. 2015, section 3.1.2).

    Args:
        d_context: D.
        grid: (h, w).
        d_hidden: n.
        memories: K.
        pool: `mean`, or `flat` for W_1 of all vectors side by side, those that are masked zero; then h w is fixed.
    """

    def __init__(
        self,
        d_context: int,
        grid: tuple[int, int],
        d_hidden: int,
        memories: int,
        pool: Literal["mean", "flat"] = "mean",
    ) -> None:
        super().__init__()
        self.pool: Literal["mean", "flat"] = pool
        width = d_context * (grid[0] * grid[1] if pool == "flat" else 1)
        self.maps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, d_hidden), nn.Tanh(), nn.Linear(d_hidden, d_hidden), nn.Tanh())
            for _ in range(memories)
        )

    def forward(self, context: ContextSet) -> tuple[Tensor, ...]:
        """See `Initial.forward`."""
        if self.pool == "mean":
            seen = context.mean()
        else:
            vectors, mask = context.vectors, context.mask
            seen = (vectors if mask is None else vectors * mask[..., None]).flatten(1)
        return tuple(map_(seen) for map_ in self.maps)
