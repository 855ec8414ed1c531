"""The CPU dropout: its law, its gradient and its corners."""

import math

import pytest
import torch

from captioning.models.parts.numerics import dropout

LEVELS = 65536


def test_the_four_elements_of_one_draw_are_independent() -> None:
    n, p = 100_000, 0.25
    torch.manual_seed(2)
    kept = (dropout(torch.ones(n, 8), p, training=True) != 0).double()
    keep = 1 - p
    for i in range(8):
        assert abs(kept[:, i].sum().item() - n * keep) < 4.5 * math.sqrt(n * keep * p)
        for j in range(i):
            both = keep**2
            assert abs((kept[:, i] * kept[:, j]).sum().item() - n * both) < 4.5 * math.sqrt(n * both * (1 - both)), (
                i,
                j,
            )


@pytest.mark.parametrize("p", [1e-5, 0.1, 1 / 3, 0.99999])
def test_expectation_is_exact_for_the_rounded_probability(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every 16-bit level once: the sample is then the distribution.
    levels = torch.arange(-LEVELS // 2, LEVELS // 2, dtype=torch.int16).view(torch.int64)
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, *_: self.copy_(levels))
    y = dropout(torch.ones(LEVELS, dtype=torch.float64), p, training=True)
    assert (y == 0).sum().item() == round(p * LEVELS)
    assert math.fsum(y.tolist()) / LEVELS == pytest.approx(1, rel=1e-14)
    assert y.unique().numel() == 2
    assert y.max() == LEVELS / (LEVELS - round(p * LEVELS))


def test_identity_when_evaluating_or_without_dropout() -> None:
    x = torch.randn(7)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x
    state = torch.get_rng_state()
    dropout(x, 0.5, training=False)
    assert torch.equal(state, torch.get_rng_state())


def test_the_gradient_has_the_mask_of_the_values() -> None:
    torch.manual_seed(4)
    x = torch.randn(11, 13, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.4, training=True)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    scale = LEVELS / (LEVELS - round(0.4 * LEVELS))
    assert 0 < (y == 0).sum() < y.numel()
    expected = torch.where(y == 0, 0.0, upstream * scale)
    torch.testing.assert_close(x.grad, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (4,), (5,), (3, 5, 7), (1, 0, 3)])
def test_any_size(shape: tuple[int, ...]) -> None:
    torch.manual_seed(5)
    x = torch.ones(shape, dtype=torch.float64)
    seen = torch.stack([dropout(x, 0.5, training=True) for _ in range(64)])
    assert seen.shape == (64, *shape)
    assert (x == 1).all()  # not in place
    if x.numel():
        assert set(seen.unique().tolist()) == {0.0, 2.0}
        zeros = (seen == 0).sum(dim=0)
        assert ((zeros > 0) & (zeros < 64)).all()  # no element is always or never dropped


def test_elements_of_a_transposed_input_stay_in_place() -> None:
    torch.manual_seed(6)
    x = torch.arange(1.0, 36.0, dtype=torch.float64).view(5, 7).t()
    y = dropout(x, 0.5, training=True)
    assert y.shape == (7, 5)
    assert ((y == 0) | (y == 2 * x)).all()


def test_reproducible_and_never_the_same_twice() -> None:
    x = torch.ones(997, dtype=torch.bfloat16)
    torch.manual_seed(7)
    first, second = dropout(x, 0.5, training=True), dropout(x, 0.5, training=True)
    torch.manual_seed(7)
    assert torch.equal(first, dropout(x, 0.5, training=True))
    assert torch.equal(second, dropout(x, 0.5, training=True))
    assert not torch.equal(first, second)
    assert first.dtype == torch.bfloat16
