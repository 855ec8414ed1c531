"""Attention against loops over the equations.

G groups, Q queries, K keys, H heads, A features per head, all different primes.
"""

import math

import pytest
import torch
from torch import Tensor

from captioning.models.parts import layers
from captioning.models.parts.layers import MultiHeadProjection, attend, causal_mask, merge_heads, temperature

G, Q, K, H, A = 2, 3, 5, 7, 11


def inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    return tuple(torch.randn(G, H, length, A, dtype=torch.float64) for length in (Q, K, K))


def looped(query: Tensor, key: Tensor, value: Tensor, taus: list[float], mask: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 2 number by number; `mask` `[G, Q, K]`."""
    out, weights = torch.zeros(G, H, Q, A, dtype=torch.float64), torch.zeros(G, H, Q, K, dtype=torch.float64)
    for g in range(G):
        for h in range(H):
            for q in range(Q):
                exps = [
                    math.exp(
                        sum(a * b for a, b in zip(query[g, h, q].tolist(), key[g, h, k].tolist(), strict=True))
                        / taus[g]
                    )
                    if mask[g, q, k]
                    else 0.0
                    for k in range(K)
                ]
                for k in range(K):
                    weights[g, h, q, k] = exps[k] / sum(exps)
                    out[g, h, q] += weights[g, h, q, k] * value[g, h, k]
    return out, weights


def test_temperature() -> None:
    assert temperature("sqrt_len_d", 196, 64) == math.sqrt(260)
    assert temperature("sqrt_len_d", 5, 11) == 4
    assert temperature("sqrt_d", 5, 49) == 7


def test_causal_mask() -> None:
    mask = causal_mask(5)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[k <= t for k in range(5)] for t in range(5)]


MASKS = {
    "none": None,
    "queries and keys": torch.tensor([[k <= 2 * q for k in range(K)] for q in range(Q)]),
    "keys of a group": torch.tensor([[k != 1 for k in range(K)], [k in (0, 3) for k in range(K)]])[:, None, None],
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize(
    "tau", [4.0, torch.tensor([3.0, 0.7], dtype=torch.float64).view(G, 1, 1, 1)], ids=["one", "per group"]
)
@pytest.mark.parametrize("need_weights", [True, False])
def test_equation_2(mask: Tensor | None, tau: float | Tensor, need_weights: bool) -> None:
    query, key, value = inputs()
    full = torch.ones(G, 1, Q, K, dtype=torch.bool) & (torch.tensor(True) if mask is None else mask)
    taus = [tau] * G if isinstance(tau, float) else tau.flatten().tolist()
    expected, expected_weights = looped(query, key, value, taus, full[:, 0])
    out, weights = attend(query, key, value, tau, mask, need_weights=need_weights)
    torch.testing.assert_close(out, expected, rtol=1e-11, atol=1e-12)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights, rtol=1e-11, atol=1e-12)
        assert (weights[~full.expand_as(weights)] == 0).all()
    else:
        assert weights is None


def test_large_scores_do_not_overflow() -> None:
    query, key, value = (1e3 * x for x in inputs())
    for need_weights in (True, False):
        out, _ = attend(query, key, value, 1.0, None, need_weights=need_weights)
        best = (query @ key.transpose(-1, -2)).argmax(dim=-1)
        torch.testing.assert_close(out, value.gather(2, best[..., None].expand(-1, -1, -1, A)))


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_falls_on_the_normalised_weights(need_weights: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def recorded(x: Tensor, p: float, training: bool) -> Tensor:
        calls.append((x, p, training))
        return 3 * x.square()

    monkeypatch.setattr(layers, "dropout", recorded)
    query, key, value = inputs()
    mask = causal_mask(K)[:Q]
    out, weights = attend(query, key, value, 2.0, mask, dropout_p=0.25, need_weights=need_weights)
    _, expected = looped(query, key, value, [2.0] * G, mask.expand(G, Q, K))
    ((dropped, p, training),) = calls
    assert (p, training) == (0.25, True)
    torch.testing.assert_close(dropped, expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(out, torch.einsum("ghqk,ghka->ghqa", 3 * expected**2, value), rtol=1e-11, atol=1e-12)
    assert (weights is None) != need_weights
    if need_weights:  # what pictures show is not thinned
        torch.testing.assert_close(weights, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_in_blocks_it_is_the_same(mask: Tensor | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "dropout", lambda x, p, training: x * (1.5 + x.cos()))
    found = []
    for block in (K, 2 * K, 100):  # one query at a time, two, all
        monkeypatch.setattr(layers, "BLOCK", block)
        given = [x.requires_grad_() for x in inputs()]
        out, _ = attend(*given, 2.0, mask, dropout_p=0.25)
        found.append((out, *torch.autograd.grad(out.cos().sum(), given)))
    for one in found[:-1]:
        for a, b in zip(one, found[-1], strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_block_drops_the_same_weights_when_it_is_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "BLOCK", K)
    query, key, value = inputs()
    out, _ = attend(query, key, value.requires_grad_(), 2.0, dropout_p=0.5)
    (gradient,) = torch.autograd.grad(out.sum(), value)
    # the output is linear in the values, so they and the gradient give it back
    assert (gradient * value).sum().item() == pytest.approx(out.sum().item(), rel=1e-9)


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_projection_has_no_bias_and_splits_heads_in_order(outputs: int) -> None:
    torch.manual_seed(1)
    project = MultiHeadProjection(H * A, H * A, H, outputs).double()
    assert [name for name, _ in project.named_parameters()] == ["linear.weight"]
    weight = project.linear.weight.detach().view(outputs, H, A, H * A)
    x = torch.randn(G, Q, H * A, dtype=torch.float64)
    projected = project(x)
    assert len(projected) == outputs
    for index in range(outputs):
        expected = torch.einsum("gse,hae->ghsa", x, weight[index])
        torch.testing.assert_close(projected[index], expected, rtol=1e-11, atol=1e-12)


def test_heads_are_concatenated_in_order() -> None:
    x = inputs()[0]
    merged = merge_heads(x)
    assert merged.shape == (G, Q, H * A)
    for h in range(H):
        assert torch.equal(merged[:, :, h * A : (h + 1) * A], x[:, h])
