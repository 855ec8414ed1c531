"""The transposed convolution by hand, and its places in pictures.

B images, vectors of D features on a grid.
"""

import pytest
import torch
from models.captioners import RECURRENT, V, captioner, inputs, normal, randomised
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.parts.encoders import SelfAttentionLayers, Transposed

B, D, GRID = 2, 5, (2, 3)
MASK = torch.tensor([[True, False, True, True, True, False], [True] * 6])


@torch.no_grad()
def test_by_hand() -> None:
    encoder = randomised(Transposed(D, GRID))
    context = ContextSet(normal(B, 6, D), GRID, MASK)
    found = encoder(context)
    weight, bias = encoder.convolutions.parameters()
    assert (found.grid, found.vectors.shape, encoder.d_out) == ((4, 6), (B, 24, D), D)
    for row in range(4):
        for column in range(6):
            source, place = 3 * (row // 2) + column // 2, 6 * row + column
            expected = context.vectors[:, source] @ weight[:, :, row % 2, column % 2] + bias
            torch.testing.assert_close(found.vectors[:, place], expected, rtol=0, atol=1e-12)
            assert torch.equal(found.mask[:, place], MASK[:, source])


@pytest.mark.parametrize("doublings", [1, 2])
def test_at_first_every_vector_becomes_as_many_of_its_like(doublings: int) -> None:
    encoder, times = Transposed(D, GRID, doublings=doublings), 2**doublings
    encoder.initialise()
    context = ContextSet(normal(B, 6, D).float(), GRID)
    found = encoder(context)
    grown = context.vectors.unflatten(1, GRID).repeat_interleave(times, 1).repeat_interleave(times, 2)
    assert torch.equal(found.vectors, grown.flatten(1, 2))
    assert found.mask is None


def test_pictures_show_the_sum_of_a_vectors_places() -> None:
    encoder = Transposed(1, GRID)
    alpha = torch.zeros(24)
    alpha[[0, 7]] = 1.0  # rows 0 and 1, columns 0 and 1
    alpha[[2, 17, 23]] = torch.tensor([2.0, 4, 8])  # columns 2 of row 0, 5 of rows 2 and 3
    assert encoder.shares(alpha).tolist() == [2, 2, 0, 0, 0, 12]


@torch.no_grad()
def test_the_encoder_behind_has_the_finer_grid() -> None:
    sizes = {"d_feat": 6, "heads": 2, "d_hidden": 7}
    encoder = randomised(Transposed(D, GRID, behind=lambda **given: SelfAttentionLayers(**given, **sizes)))
    context = ContextSet(normal(B, 6, D), GRID, MASK)
    alone = encoder.behind(
        ContextSet(encoder.convolutions(context.vectors.mT.unflatten(2, GRID)).flatten(2).mT, (4, 6))
    )
    unmasked = encoder(ContextSet(context.vectors, GRID))
    torch.testing.assert_close(unmasked.vectors, alone.vectors, rtol=0, atol=1e-12)
    assert (unmasked.vectors - encoder(context).vectors).abs().max() > 1e-3  # the mask is heeded
    assert encoder.d_out == 6


@torch.no_grad()
def test_before_a_recurrent_decoder() -> None:
    context, tokens = inputs()
    model = captioner("sat_soft model/encoder=transposed", V, context.vectors.shape[-1], context.grid, **RECURRENT)
    model = randomised(model)
    attention = model(context, tokens, need_weights=True).attention
    assert attention.shape == (*tokens.shape, context.vectors.shape[1])
    torch.testing.assert_close(attention.sum(-1), torch.ones(tokens.shape).double(), rtol=0, atol=1e-12)
    step = model.step(tokens[..., 0], model.start(context, tokens.shape[1]))
    torch.testing.assert_close(step.attention, attention[:, :, 0], rtol=0, atol=1e-12)


def test_another_grid_is_refused() -> None:
    vectors: Tensor = normal(B, 6, D).float()
    with pytest.raises(ValueError, match=r"grid of \(3, 2\) came, the model is built for \(2, 3\)"):
        Transposed(D, GRID)(ContextSet(vectors, (3, 2)))
