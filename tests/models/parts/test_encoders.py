"""Encoders against PyTorch's attention and their equations. The stack of layers is in tests/models/test_transformer.py.

B images, L context vectors of D features.
"""

from typing import Any

import pytest
import torch
from models.captioners import normal
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.models.parts.encoders import SelfAttentionBlock, SelfAttentionLayers

B, L, D = 2, 7, 24
MASK = torch.ones(B, L, dtype=torch.bool)
MASK[0, 2], MASK[1, 3:] = False, False
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-12}

masks = pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])


def randomised(part: Any) -> Any:
    torch.manual_seed(0)
    for parameter in part.double().parameters():
        nn.init.normal_(parameter, std=0.3)
    return part


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


@masks
@torch.no_grad()
def test_a_layer_is_attention_of_pytorch_then_feed_forward(mask: Tensor | None) -> None:
    settings: Any = {"d_feat": D, "heads": 3, "d_hidden": 5, "layers": 1, "scale": "sqrt_d", "positions": "none"}
    encoder = randomised(SelfAttentionLayers(D, (1, L), **settings)).eval()
    (layer,) = encoder.layers
    theirs = nn.MultiheadAttention(D, 3, bias=False, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.copy_(layer.attention.project.linear.weight)
    theirs.out_proj.weight.copy_(layer.attention.output.weight)
    x = normal(B, L, D)
    attended, _ = theirs(x, x, x, key_padding_mask=None if mask is None else ~mask)
    x = layer.attention.norm(attended + x)
    expected = layer.feed_forward.norm(layer.feed_forward.layers(x) + x)
    found = encoder(ContextSet(normal(B, L, D), (1, L), mask))
    torch.testing.assert_close(found.vectors, expected, **CLOSE)
    assert found.vectors.shape[2] == encoder.d_out


def test_another_number_of_vectors_is_refused() -> None:
    encoder = SelfAttentionLayers(D, (1, L), d_feat=D, heads=3)
    with pytest.raises(ValueError, match=f"8 context vectors came.*built for {L}"):
        encoder(ContextSet(torch.zeros(B, L + 1, D), (1, L + 1)))
