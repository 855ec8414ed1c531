"""Attention in blocks, with dropout and of large scores; its equation is PyTorch's in
test_transformer.py.

G groups, Q queries, K keys, H heads, A features per head, all different primes.
"""

import pytest
import torch
from models.tensors import close

from captioning.models.parts import multi_head
from captioning.models.parts.multi_head import attend

G, Q, K, H, A = 2, 3, 5, 7, 11
MASKS = {
    "none": None,
    "queries and keys": torch.tensor([[k <= 2 * q for k in range(K)] for q in range(Q)]),
    "keys of a group": torch.tensor([[k != 1 for k in range(K)], [k in (0, 3) for k in range(K)]])[
        :, None, None
    ],
}
masks = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())


def inputs():
    torch.manual_seed(0)
    return [torch.randn(G, H, length, A, dtype=torch.float64) for length in (Q, K, K)]


@masks
def test_in_blocks_it_is_the_same(mask, monkeypatch):
    monkeypatch.setattr(multi_head, "dropout", lambda x, p, training: x * (1.5 + x.cos()))
    found = []
    for block in (K, 2 * K, 100):  # one query at a time, two, all
        monkeypatch.setattr(multi_head, "BLOCK", block)
        given = [x.requires_grad_() for x in inputs()]
        out, _ = attend(*given, 2.0, mask, dropout_p=0.25)
        found.append([out, *torch.autograd.grad(out.cos().sum(), given)])
    for one in found[:-1]:
        close(one, found[-1])


def test_a_block_drops_the_same_weights_when_it_is_computed_anew(monkeypatch):
    monkeypatch.setattr(multi_head, "BLOCK", K)
    query, key, value = inputs()
    out, _ = attend(query, key, value.requires_grad_(), 2.0, dropout_p=0.5)
    (gradient,) = torch.autograd.grad(out.sum(), value)
    # the output is linear in the values, so they and the gradient give it back
    assert (gradient * value).sum().item() == pytest.approx(out.sum().item(), rel=1e-9)


@pytest.mark.parametrize("need_weights", [True, False])
def test_large_scores_do_not_overflow(need_weights):
    query, key, value = (1e3 * x for x in inputs())
    out, _ = attend(query, key, value, 1.0, None, need_weights=need_weights)
    best = (query @ key.mT).argmax(dim=-1)
    expected = value.gather(2, best[..., None].expand(-1, -1, -1, A)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(out, expected)
