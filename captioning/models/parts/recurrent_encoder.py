"""A recurrent encoder: context vectors as a sequence, such as frames or words.

B sequences, L context vectors of D features, n features per direction; with r neighbours joined L'
= ceil(L / r).
"""

from dataclasses import replace
from math import prod
from typing import Annotated, Literal, cast

import torch
from pydantic import Strict
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Count, Width, validated
from captioning.models.parts.encoders import Encoder


class RecurrentEncoder(Encoder):
    """States of both directions: c_i = [forward h_i; backward h_i].

    In the order of the grid's rows (Bahdanau et al. 2015, section 3.2).

    Masked vectors, wherever they are, are left out of the sequence in both directions; those behind
    the last real one of the batch are cut off.

    Args:
        cell: torch's; its GRU multiplies r by U h, as the authors' tutorial code does.
        d_hidden: n.
        bidirectional: False reads forwards only.
        pyramid: for each layer the neighbours r that it reads as one vector (Chan et al. 2016,
            "Listen, Attend and Spell"), the last ones filled with zeros (D); a group is masked if
            all its vectors are.
    """

    @validated
    def __init__(
        self,
        d_context: int,
        grid: Grid,
        *,
        cell: Literal["gru", "lstm"] = "gru",
        d_hidden: Width = 256,
        bidirectional: bool = True,
        pyramid: Annotated[tuple[Count, ...], Strict(False)] = (1,),
    ):
        super().__init__()
        self.length, self.pyramid, self.joined = prod(grid), pyramid, prod(pyramid)
        self.d_out = d_context
        self.layers = nn.ModuleList()
        for rate in pyramid:
            kind, width = nn.GRU if cell == "gru" else nn.LSTM, rate * self.d_out
            units = [kind(width, d_hidden, batch_first=True) for _ in range(1 + bidirectional)]
            self.layers.append(nn.ModuleList(units))
            self.d_out = d_hidden * len(units)

    def initialise(self) -> None:
        """Like the decoder's cells (D)."""
        for unit in self.modules():
            if isinstance(unit, nn.RNNBase):
                seen, recurrent, *biases = unit.parameters()
                nn.init.xavier_uniform_(seen)
                for block in recurrent.split(unit.hidden_size):
                    nn.init.orthogonal_(block)
                for bias in biases:
                    nn.init.zeros_(bias)
                if unit.mode == "LSTM":
                    nn.init.ones_(biases[0].chunk(4)[1])

    def forward(self, context: ContextSet) -> ContextSet:
        x, mask = context.vectors, context.mask
        # The longest sequence of a batch may be far shorter than that of the data set.
        if mask is not None:
            longest = int(mask.any(0).nonzero().max()) + 1
            x, mask = x[:, :longest], mask[:, :longest]
        for rate, units in zip(self.pyramid, self.layers, strict=True):
            if mask is not None:
                x = x.masked_fill(~mask[..., None], 0.0)
                mask = _groups(mask[..., None], rate).any(-1)
            x = _groups(x, rate)
            forward, *backward = cast(nn.ModuleList, units)
            x = torch.cat(
                [_read(forward, x, mask), *(_read(unit, x, mask, True) for unit in backward)],
                dim=-1,
            )
        return replace(context, vectors=x, grid=(1, x.shape[1]), mask=mask)

    def to_input_grid(self, alpha: Tensor) -> Tensor:
        """Divide a weight evenly between the vectors of its group, masked ones included (D)."""
        group = torch.arange(self.length, device=alpha.device) // self.joined
        size = alpha.new_tensor([*map(len, group.split(self.joined))])
        return (nn.functional.pad(alpha, (0, len(size) - alpha.shape[-1])) / size)[..., group]


def _groups(x: Tensor, size: int) -> Tensor:
    """`[B, L, D]` to `[B, L', r D]`, filled with zeros or False."""
    return nn.functional.pad(x, (0, 0, 0, -x.shape[1] % size)).unflatten(1, (-1, size)).flatten(2)


def _read(unit: nn.Module, x: Tensor, mask: Tensor | None, backward: bool = False) -> Tensor:
    """The states `[B, L, n]`, each at the place of its vector.

    Real vectors come first, in order or backwards, so that neither direction passes through the
    padding, without lengths that a GPU would have to wait for.
    """
    positions = torch.arange(x.shape[1], device=x.device)
    rank = (positions.flip(0) if backward else positions).expand(x.shape[:2])
    if mask is not None:
        rank = torch.where(mask, rank, rank + x.shape[1])
    order = rank.argsort(dim=1)[..., None]
    states, _ = unit(x.take_along_dim(order, dim=1))
    return states.take_along_dim(order.argsort(dim=1), dim=1)
