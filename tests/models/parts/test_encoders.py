"""Encoders and positions against their equations. The stack of layers is in
tests/models/test_transformer.py.

B images, vectors of D features on a grid of (h, w).
"""

import pytest
import torch
from models.captioners import OF_SIX as MASK
from models.captioners import all_or
from models.tensors import close, normal, randomised

from captioning.backbones.context import ContextSet
from captioning.models.parts.encoders import (
    Pooled,
    SelfAttentionBlock,
    SelfAttentionLayers,
    Transposed,
)
from captioning.models.parts.numerics import initialise

B, D, GRID, L = 2, 24, (2, 3), 6

masks = all_or(MASK)


@masks
def test_the_block_is_nothing_at_first_and_by_hand_afterwards(mask):
    block, context = SelfAttentionBlock(D, GRID).double(), ContextSet(normal(B, L, D), GRID, mask)
    found, x = block(context), context.vectors
    assert torch.equal(found.vectors, x)
    assert (found.grid, found.mask, block.d_out) == (GRID, mask, D)
    found.vectors.square().sum().backward()
    assert block.gamma.grad != 0
    found = randomised(block)(context).vectors
    q, k, v = (x @ w.T for w in block.project.weight.split((D // 8, D // 8, D // 2)))
    for b in range(B):
        allowed = [j for j in range(L) if mask is None or mask[b, j]]
        for i in range(L):
            weights = torch.stack([(q[b, i] @ k[b, j]).exp() for j in allowed])
            mixed = (weights / weights.sum()) @ v[b, allowed]
            close(found[b, i], x[b, i] + block.gamma * (block.output.weight @ mixed))


@masks
@torch.no_grad()
@pytest.mark.parametrize("batch_norm", ["input", "both"])
def test_features_are_normalised_where_they_are_embedded(mask, batch_norm):
    settings = {"d_model": 5, "heads": 1, "layers": 0, "embed": "relu", "positions": "none"}
    encoder = randomised(SelfAttentionLayers(D, GRID, **settings, batch_norm=batch_norm))
    for k, norm in enumerate(encoder.batch_norms):
        norm.running_mean.copy_(normal(norm.num_features, seed=2 + k))
        norm.running_var.copy_(normal(norm.num_features, seed=4 + k).square())
    context = ContextSet(normal(B, L, D), GRID, mask)

    def normalised(norm, x):
        scaled = (x - norm.running_mean) / (norm.running_var + 1e-5).sqrt()
        return scaled * norm.weight + norm.bias

    x = normalised(encoder.batch_norms[0], context.vectors)
    x = (x @ encoder.project.weight.T + encoder.project.bias).clamp(min=0)
    if batch_norm == "both":
        x = normalised(encoder.batch_norms[1], x)
    close(encoder(context).vectors, x)


@torch.no_grad()
@pytest.mark.parametrize("kind", [SelfAttentionBlock, SelfAttentionLayers, Transposed, Pooled])
def test_the_vector_of_the_whole_image_passes_through(kind):
    whole = normal(B, 7)
    context = ContextSet(normal(B, L, D), GRID, MASK, whole)
    assert kind(D, GRID).double()(context).whole is whole


@torch.no_grad()
def test_transposed_by_hand():
    encoder, context = randomised(Transposed(D, GRID)), ContextSet(normal(B, L, D), GRID, MASK)
    found = encoder(context)
    weight, bias = encoder.convolutions.parameters()
    assert (found.grid, found.vectors.shape, encoder.d_out) == ((4, 6), (B, 24, D), D)
    for row in range(4):
        for column in range(6):
            source, place = 3 * (row // 2) + column // 2, 6 * row + column
            expected = context.vectors[:, source] @ weight[:, :, row % 2, column % 2] + bias
            close(found.vectors[:, place], expected)
            assert torch.equal(found.mask[:, place], MASK[:, source])


@pytest.mark.parametrize("upsample_steps", [1, 2])
def test_at_first_every_vector_becomes_as_many_of_its_like(upsample_steps):
    encoder, times = Transposed(D, GRID, upsample_steps=upsample_steps), 2**upsample_steps
    initialise(encoder)
    vectors = normal(B, L, D).float()
    grown = vectors.unflatten(1, GRID).repeat_interleave(times, 1).repeat_interleave(times, 2)
    assert torch.equal(encoder(ContextSet(vectors, GRID)).vectors, grown.flatten(1, 2))


def test_pictures_show_the_sum_of_a_vectors_places():
    alpha = torch.zeros(24)
    alpha[[0, 7]] = 1.0  # rows 0 and 1, columns 0 and 1
    alpha[[2, 17, 23]] = torch.tensor([2.0, 4, 8])  # columns 2 of row 0, 5 of rows 2 and 3
    assert Transposed(1, GRID).to_input_grid(alpha).tolist() == [2, 2, 0, 0, 0, 12]


def test_another_grid_is_refused():
    with pytest.raises(ValueError, match=r"got a grid of \(3, 2\)"):
        Transposed(D, GRID)(ContextSet(normal(B, L, D).float(), (3, 2)))


@torch.no_grad()
def test_the_encoder_behind_has_the_finer_grid_and_mask():
    sizes = {"d_model": 6, "heads": 2, "d_ff": 7}
    encoder = randomised(
        Transposed(D, GRID, encoder=lambda **given: SelfAttentionLayers(**given, **sizes))
    )
    context = ContextSet(normal(B, L, D), GRID, MASK)
    alone = Transposed(D, GRID)
    alone.convolutions = encoder.convolutions
    finer = alone(context)
    assert (finer.grid, finer.mask.sum().item(), encoder.d_out) == ((4, 6), 4 * 10, 6)
    torch.testing.assert_close(
        encoder(context).vectors, encoder.inner(finer).vectors, rtol=0, atol=1e-12
    )
