"""Matrices in bfloat16: what is rounded, by how much, and what stays."""

import pytest
import torch
from torch import nn

from captioning.models.parts.numerics import LowerLinear, lower

ROUNDING = 2.0**-8
"""Of a number in bfloat16, relative."""


@pytest.mark.parametrize("bias", [True, False])
def test_a_lower_layer_is_the_layer_up_to_the_rounding_of_its_numbers(bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(200, 100, bias=bias)
    x = torch.randn(3, 7, 200)
    exact = x.double() @ linear.weight.double().T
    bound = 3 * ROUNDING * (x.abs().double() @ linear.weight.abs().double().T)  # of weight, argument and result
    found = LowerLinear(linear)(x)
    assert found.dtype == x.dtype
    offset = linear.bias.double() if bias else 0.0
    assert ((found - offset - exact).abs() <= bound).all()
    assert not torch.equal(found.double() - offset, exact)


def test_large_matrices_are_lower_and_the_last_and_small_ones_are_not() -> None:
    model = nn.Sequential(nn.Linear(128, 128), nn.Sequential(nn.Linear(128, 4), nn.Linear(4, 128)), nn.Linear(128, 300))
    last = model[2].weight.clone()
    lower(model, vocab_size=300)
    kinds = [type(part) for part in model.modules() if not isinstance(part, nn.Sequential)]
    assert kinds == [LowerLinear, nn.Linear, nn.Linear, nn.Linear]
    assert torch.equal(model[2].weight, last)
    assert model[0].weight.dtype == torch.bfloat16
