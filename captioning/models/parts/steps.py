"""Linear layers that every step of a caption applies, with one weight gradient for all steps.

The gradient of a matrix `[O, I]` at a step is a product of few rows, and as large as the matrix:
writing and adding it at every step is bound by memory. Here the steps' inputs and gradients are
kept, and multiplied once.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Steps = defaultdict[int, list[tuple[Tensor, Tensor]]]
"""Of each backward pass, input and gradient of every step's product; a pass to other leaves leaves
its own unused.
"""


class StepLinear(nn.Linear):
    """`nn.Linear` without bias that computes its weight gradient once per `unrolled` block."""

    def __init__(self, d_in: int, d_out: int):
        super().__init__(d_in, d_out, bias=False)
        self._shared: _Shared | None = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self._shared is None else self._shared.product(x)


@contextmanager
def unrolled(*parts: nn.Module | None) -> Iterator[None]:
    """Within the block, each `StepLinear` of the parts is one layer applied at several steps."""
    layers = [
        layer for part in parts if part for layer in part.modules() if isinstance(layer, StepLinear)
    ]
    # A compiler fuses the steps itself.
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        layers = []
    for layer in layers:
        layer._shared = _Shared(layer.weight)
    try:
        yield
    finally:
        for layer in layers:
            layer._shared = None


class _Shared:
    """The weight for all steps of a block in the precision of autocast, and what its gradient is
    made of.
    """

    def __init__(self, weight: Tensor):
        device = weight.device.type
        dtype = (
            torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        )
        self.steps: Steps = defaultdict(list)
        self.weight = _Weight.apply(weight, dtype, self.steps)

    def product(self, x: Tensor) -> Tensor:
        return _Product.apply(x.to(self.weight.dtype), self.weight, self.steps)


class _Weight(torch.autograd.Function):
    """The weight itself; autograd comes back to it after all steps."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, dtype: torch.dtype, steps: Steps) -> Tensor:
        ctx.steps, ctx.dtype = steps, weight.dtype
        ctx.set_materialize_grads(False)
        return weight.view_as(weight) if weight.dtype == dtype else weight.to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None) -> tuple[Tensor, None, None]:
        steps = zip(*ctx.steps.pop(torch._C._current_graph_task_id()), strict=True)
        inputs, gradients = (torch.cat([x.flatten(0, -2) for x in tensors]) for tensors in steps)
        return (gradients.T @ inputs).to(ctx.dtype), None, None


class _Product(torch.autograd.Function):
    """x W^T; the gradient of W is left to `_Weight`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, steps: Steps) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.steps = steps
        return nn.functional.linear(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.steps[torch._C._current_graph_task_id()].append((x, gradient))
        return gradient @ weight if ctx.needs_input_grad[0] else None, None, None
