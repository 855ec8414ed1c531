"""The CPU's dropout: its law, its gradient and its corners; matrices in bfloat16."""

import math

import pytest
import torch
from torch import nn

from captioning.models.parts.numerics import LEVELS, BFloat16Linear, dropout, to_bfloat16


def test_the_four_elements_of_one_draw_are_independent():
    n, p = 100_000, 0.25
    torch.manual_seed(2)
    kept = (dropout(torch.ones(n, 8), p, training=True) != 0).double()
    for i in range(8):
        for j in range(i + 1):
            share = (1 - p) ** (1 if i == j else 2)
            both = (kept[:, i] * kept[:, j]).sum().item()
            assert abs(both - n * share) < 4.5 * math.sqrt(n * share * (1 - share)), (i, j)


@pytest.mark.parametrize("p", [1e-5, 0.1, 1 / 3, 0.99999])
def test_expectation_is_exact_for_the_rounded_probability(p, monkeypatch):
    # Every 16-bit level once: the sample is then the distribution.
    levels = torch.arange(-LEVELS // 2, LEVELS // 2, dtype=torch.int16).view(torch.int64)
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, *_: self.copy_(levels))
    y = dropout(torch.ones(LEVELS, dtype=torch.float64), p, training=True)
    assert (y == 0).sum().item() == round(p * LEVELS)
    assert math.fsum(y.tolist()) / LEVELS == pytest.approx(1, rel=1e-14)
    assert y.unique().tolist() == [0, LEVELS / (LEVELS - round(p * LEVELS))]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (3, 5, 7)])
def test_every_element_stays_in_place_doubled_or_is_dropped(shape):
    torch.manual_seed(5)
    whole = 1 + torch.rand(shape[::-1], dtype=torch.float64)
    x = whole.permute(tuple(reversed(range(whole.ndim)))).requires_grad_()  # strided
    assert dropout(x, 0.5, training=False) is dropout(x, 0.0, training=True) is x
    seen = torch.stack([dropout(x, 0.5, training=True) for _ in range(64)])
    assert ((seen == 0) | (seen == 2 * x)).all()
    zeros = (seen == 0).sum(dim=0)
    assert ((zeros > 0) & (zeros < 64)).all()  # no element is always or never dropped
    (gradient,) = torch.autograd.grad(seen.square().sum() / 2, x)
    torch.testing.assert_close(gradient, 2 * seen.detach().sum(dim=0))


@pytest.mark.parametrize("bias", [True, False])
def test_a_lower_layer_is_the_layer_up_to_the_rounding_of_its_numbers(bias):
    torch.manual_seed(0)
    linear = nn.Linear(200, 100, bias=bias)
    x = torch.randn(3, 7, 200)
    exact = x.double() @ linear.weight.double().T
    bound = (
        3 * 2.0**-8 * (x.abs().double() @ linear.weight.abs().double().T)
    )  # of weight, argument and result
    found = BFloat16Linear(linear)(x)
    assert found.dtype == x.dtype
    offset = linear.bias.double() if bias else 0.0
    assert ((found - offset - exact).abs() <= bound).all()
    assert not torch.equal(found.double() - offset, exact)


def test_large_matrices_are_lower_and_the_last_and_small_ones_are_not():
    model = nn.Sequential(
        nn.Linear(128, 128),
        nn.Sequential(nn.Linear(128, 4), nn.Linear(4, 128)),
        nn.Linear(128, 300),
    )
    to_bfloat16(model, vocab_size=300)
    kinds = [type(part) for part in model.modules() if not isinstance(part, nn.Sequential)]
    assert kinds == [BFloat16Linear, nn.Linear, nn.Linear, nn.Linear]
    assert model[0].weight.dtype == torch.bfloat16
