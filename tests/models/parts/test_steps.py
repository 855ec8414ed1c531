"""One weight gradient for all steps: that of a plain linear layer, by one product."""

import copy
from contextlib import nullcontext

import pytest
import torch
from models.tensors import close
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.models.parts.steps import StepLinear, unrolled

D, N, STEPS = 5, 3, 7


def drawn():
    """A layer, a linear one with its weights, and what they read."""
    torch.manual_seed(0)
    layer, linear = StepLinear(D, D).double(), nn.Linear(D, D, bias=False, dtype=torch.float64)
    linear.load_state_dict(layer.state_dict())
    return layer, linear, torch.randn(2, N, D, dtype=torch.float64, requires_grad=True)


def recurrence(layer, x, steps=STEPS):
    start = x
    for _ in range(steps):
        x = (layer(x) + start).tanh()
    return x.square().sum()


class Products(TorchDispatchMode):
    """Shapes of the matrix products."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mm.default:
            self.shapes.append(tuple(result.shape))
        return result


def test_equals_a_linear_layer_by_one_product():
    layer, linear, x = drawn()
    expected = torch.autograd.grad(recurrence(linear, x), [linear.weight, x])
    with unrolled(nn.Sequential(layer), None):
        loss = recurrence(layer, x)
    close(loss, recurrence(linear, x), 0)
    with Products() as products:
        found = torch.autograd.grad(loss, [layer.weight, x])
    close(found, expected)
    assert products.shapes.count((D, D)) == 1
    assert set(layer.state_dict()) == {"weight"}
    copy.deepcopy(layer)  # nothing of the block is left


def test_passes_stay_apart():
    """Two in one loss, one after another, and one that asks for other gradients before."""
    layer, linear, x = drawn()
    expected = torch.autograd.grad(
        recurrence(linear, x) + 3 * recurrence(linear, 2 * x, 2), linear.weight
    )[0]

    def losses():
        made = []
        for given, steps in ((x, STEPS), (2 * x, 2)):
            with unrolled(layer):
                made.append(recurrence(layer, given, steps))
        return made

    def together():
        first, second = losses()
        (first + 3 * second).backward()

    def apart():
        first, second = losses()
        (3 * second).backward()
        first.backward()

    def again():
        first, second = losses()
        loss = first + 3 * second
        torch.autograd.grad(loss, x, retain_graph=True)
        loss.backward()

    passes = [together, apart, again]
    for run in passes:
        layer.weight.grad = None
        run()
        close(layer.weight.grad, expected, 1e-11)


def test_frozen_and_without_gradients():
    layer, linear, x = drawn()
    expected = torch.autograd.grad(recurrence(linear, x), x)
    layer.requires_grad_(False)
    with unrolled(layer):
        found = torch.autograd.grad(recurrence(layer, x), x)
    close(found, expected, 0)
    with torch.no_grad(), unrolled(layer):
        assert recurrence(layer, x).grad_fn is None


@pytest.mark.parametrize("block", [unrolled, lambda _: nullcontext()])
def test_bfloat16(block):
    """Within autocast the products and the gradient of the input are as a linear layer's; the
    weight's is as exact.
    """
    layer, _, x = drawn()
    exact = torch.autograd.grad(recurrence(layer, x), layer.weight)[0]
    layer, single = layer.float(), x.detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16), block(layer):
        loss = recurrence(layer, single)
    found = torch.autograd.grad(loss, layer.weight)[0]
    assert found.dtype == torch.float32
    assert float((found - exact).norm() / exact.norm()) < 0.02
