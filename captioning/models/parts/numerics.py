"""Dropout, optional inputs, initialisation, reordering of hypotheses, and bfloat16 matrices."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

LEVELS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout (Srivastava et al. 2014) with probability `p`.

    The elements that stay are divided by 1 - p.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return nn.functional.dropout(x, p)
    dropped = round(p * LEVELS)
    # one 64-bit number for four elements, since drawing takes most of the time
    draws = (
        torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
        .random_(-(2**63), None)
        .view(torch.int16)
    )
    kept = (draws[: x.numel()] >= dropped - LEVELS // 2).view(x.shape)
    return x * kept.to(x.dtype).mul_(LEVELS / (LEVELS - dropped))


def at_least_single(x: Tensor) -> Tensor:
    """The same numbers, in single precision if theirs is lower."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def plus(x: Tensor, matrix: nn.Module | None, further: Tensor | None) -> Tensor:
    """x + W y of a `further` input y, where a part has W and there is y."""
    return x if matrix is None or further is None else x + matrix(further)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode within a block, and each of its parts back into its own."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


class Part(nn.Module):
    """A module with parameters that need initialisation besides `glorot`."""

    def initialise(self) -> None:
        """Initialise the parameters that `glorot` does not, except those of submodules."""


def initialise(*parts: nn.Module | None) -> None:
    """Initialise each `Part` in `parts`."""
    for part in filter(None, parts):
        for module in part.modules():
            if isinstance(module, Part):
                module.initialise()


def glorot(model: nn.Module) -> None:
    """Initialise every linear layer of `model`: Glorot for the matrix, zero for the bias (D)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def index_select_hypotheses(tensors: Iterable[Tensor], parents: Tensor) -> tuple[Tensor, ...]:
    """Select the rows `parents` `[B, N]` of tensors `[B, N', ...]` along the second axis."""
    images = torch.arange(parents.shape[0], device=parents.device)[:, None]
    return tuple(x[images, parents] for x in tensors)


class BFloat16Linear(nn.Module):
    """A linear layer with a bfloat16 matrix; bias and outputs keep their precision."""

    weight: Tensor

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.register_buffer("weight", linear.weight.detach().bfloat16())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        result = nn.functional.linear(x.bfloat16(), self.weight).to(x.dtype)
        return result if self.bias is None else result + self.bias


def to_bfloat16(model: nn.Module, vocab_size: int) -> None:
    """Convert matrices of at least 2^14 elements to bfloat16, to decode with a trained model.

    The last layer, to `vocab_size` words, is not converted: a search compares small differences of
    large logits, and bfloat16 has eight significant bits.
    """
    for part in list(model.modules()):
        for name, child in part.named_children():
            if (
                type(child) is nn.Linear
                and child.out_features != vocab_size
                and child.weight.numel() >= 2**14
            ):
                setattr(part, name, BFloat16Linear(child))
