"""The recurrent encoder against single steps, its directions and its groups. B sequences of at most
L vectors.
"""

import pytest
import torch
from models.tensors import close, normal, randomised
from torch.testing import assert_close

from captioning.backbones.context import ContextSet
from captioning.models.parts.image import Last
from captioning.models.parts.recurrent_encoder import RecurrentEncoder

pytestmark = pytest.mark.usefixtures("without_gradients")

B, L, D, N = 3, 7, 5, 4
LENGTHS = (6, 4, 1)
"""So that the last vector is padding of all."""
MASK = torch.tensor([[place < length for place in range(L)] for length in LENGTHS])

cells = pytest.mark.parametrize("cell", ["gru", "lstm"])


def encoder(length=L, **settings):
    return randomised(RecurrentEncoder(D, (1, length), d_hidden=N, **settings))


@cells
@pytest.mark.parametrize("pyramid", [(1,), (1, 1), (1, 2, 2), (3,)], ids=str)
def test_a_padded_batch_equals_each_sequence_alone(cell, pyramid):
    part, vectors = encoder(cell=cell, pyramid=pyramid), normal(B, L, D)
    found = part(ContextSet(vectors.masked_fill(~MASK[..., None], 9.0), (1, L), MASK))
    assert found.grid == (1, found.vectors.shape[1])
    for row, length in enumerate(LENGTHS):
        alone = part(ContextSet(vectors[row : row + 1, :length], (1, length)))
        count = alone.vectors.shape[1]
        close(found.vectors[row, :count], alone.vectors[0])
        assert found.mask[row].tolist() == [
            place < count for place in range(found.vectors.shape[1])
        ]


@cells
def test_the_reverse_swaps_and_reverses_the_halves_if_directions_share_weights(cell):
    part, vectors = encoder(cell=cell), normal(B, L, D)
    forward, backward = part.layers[0]
    backward.load_state_dict(forward.state_dict())
    there, back = (part(ContextSet(x, (1, L))).vectors for x in (vectors, vectors.flip(1)))
    close(back, torch.cat([there[..., N:], there[..., :N]], dim=-1).flip(1))


@pytest.mark.parametrize(
    "length, pyramid, count", [(8, (1, 2, 2), 2), (9, (1, 2, 2), 3), (7, (3,), 3)]
)
def test_weights_of_groups_are_divided_between_their_vectors(length, pyramid, count):
    part = encoder(length, pyramid=pyramid)
    assert part(ContextSet(normal(B, length, D), (1, length))).vectors.shape == (B, count, 2 * N)
    alpha, times = torch.arange(1.0, count + 1).softmax(0).expand(2, count), part.joined
    shown = part.to_input_grid(alpha)
    assert_close(shown[1, :times], alpha[0, :1].expand(times) / times)
    last = length - (count - 1) * times
    assert_close(shown[1, -last:], alpha[0, -1:].expand(last) / last)
    assert shown.shape == (2, length)


def test_the_initial_state_reads_the_whole_sequence_backwards():
    part, vectors = encoder(), normal(B, L, D)
    initial = randomised(Last(part.d_out, (1, L), d_hidden=6, memories=2))
    found = initial(part(ContextSet(vectors, (1, L), MASK)))
    for row, length in enumerate(LENGTHS):
        _, state = part.layers[0][1](vectors[row : row + 1, :length].flip(1))
        for each, layer in zip(found, initial.maps, strict=True):
            close(each[row], (layer.weight @ state[0, 0]).tanh())
