"""The block of self-attention against its equation. The stack of layers is in tests/models/test_transformer.py.

B images, L context vectors of D features.
"""

from typing import Any

import pytest
import torch
from models.captioners import normal, randomised
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.parts.encoders import SelfAttentionBlock

B, L, D = 2, 7, 24
MASK = torch.ones(B, L, dtype=torch.bool)
MASK[0, 2], MASK[1, 3:] = False, False
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-12}

masks = pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])


@masks
def test_the_block_is_nothing_at_first_and_learns_to_be_something(mask: Tensor | None) -> None:
    block = SelfAttentionBlock(D, (1, L)).double()
    context = ContextSet(normal(B, L, D), (1, L), mask)
    found = block(context)
    assert torch.equal(found.vectors, context.vectors)
    assert (found.grid, found.mask, block.d_out) == (context.grid, mask, D)
    found.vectors.square().sum().backward()
    assert block.gamma.grad != 0


@masks
@torch.no_grad()
def test_the_block_by_hand(mask: Tensor | None) -> None:
    block = randomised(SelfAttentionBlock(D, (1, L)))
    x = normal(B, L, D)
    found = block(ContextSet(x, (1, L), mask)).vectors
    q, k, v = (x @ w.T for w in block.project.weight.split((D // 8, D // 8, D // 2)))
    for b in range(B):
        for i in range(L):
            allowed = [j for j in range(L) if mask is None or mask[b, j]]
            weights = torch.stack([(q[b, i] @ k[b, j]).exp() for j in allowed])
            mixed = (weights / weights.sum()) @ v[b, allowed]
            expected = x[b, i] + block.gamma * (block.output.weight @ mixed)
            torch.testing.assert_close(found[b, i], expected, **CLOSE)
