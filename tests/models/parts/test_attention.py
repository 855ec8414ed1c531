"""What becomes of scores, by hand: sharpening, smoothing, windows. Gate, choice and draws:
test_recurrent.py.

B images, N captions per image, L context vectors on a grid.
"""

import math

import pytest
import torch

from captioning.backbones.context import ContextSet
from captioning.models.parts.attention import SoftmaxAttention
from captioning.models.parts.scores import Score

E = [0.5, -1.0, 2.0, 0.0, 3.0, 1.0]


class Fixed(Score):
    """Scores that are given."""

    def __init__(self, **sizes):
        super().__init__(1)

    def keys(self, context):
        return None

    def forward(self, keys, query, past=None):
        return torch.tensor(E).double().expand(*query.shape[:2], -1)


def weights(grid=(1, 6), past=None, mask=None, energy=0.0, **how):
    attention = SoftmaxAttention(1, 1, grid, Fixed, **how)
    for bias in attention.parameters():
        bias.data.fill_(energy)
    image = attention.read(ContextSet(torch.arange(6.0).double().view(1, 6, 1), grid, mask))
    look = attention(
        image,
        torch.zeros(1, 1, 1).double(),
        torch.tensor(past).double().view(1, 1, 6) if past else None,
    )
    alpha = look.alpha.flatten()
    torch.testing.assert_close(look.context.flatten(), (alpha @ torch.arange(6.0).double())[None])
    return alpha.tolist()


def shares(amounts):
    return pytest.approx([amount / sum(amounts) for amount in amounts], abs=1e-12)


def kept(*places):
    return shares([math.exp(e) if i in places else 0.0 for i, e in enumerate(E)])


def test_sharpening_and_smoothing():
    assert (
        weights() == weights(energy_bias=True, energy=-1.5) == kept(*range(6))
    )  # a softmax does not notice
    assert weights(temperature=0.25) == shares([math.exp(4 * e) for e in E])
    assert weights(smoothing=True) == shares([1 / (1 + math.exp(-e)) for e in E])
    assert weights(smoothing=True, temperature=0.5, energy_bias=True, energy=-1.5) == shares(
        [1 / (1 + math.exp(-2 * (e - 1.5))) for e in E]
    )


def test_a_window_lies_around_the_median_of_the_last_weights():
    past = [0.1, 0.2, 0.1, 0.3, 0.2, 0.1]  # half lies at or before place 3
    assert weights(past=past, window=1) == kept(2, 3, 4)
    assert weights(past=past, window=0) == kept(3)
    assert weights(past=past[3:] + past[:3], window=1) == kept(0, 1, 2)
    assert weights(window=1) == weights(past=past) == kept(*range(6))  # the first step sees all
    assert weights(past=[0, 0.5, 0, 0.5, 0, 0], window=0) == kept(1)  # of two medians the first


def test_a_window_on_a_grid_has_rows_and_columns():
    past = [0.0, 0.1, 0.6, 0.1, 0.1, 0.1]  # rows of three: row 0, column 2
    assert weights((2, 3), past, window=0) == kept(2)
    assert weights((2, 3), past, window=1) == kept(1, 2, 4, 5)


def test_a_window_without_anything_to_attend_is_none():
    past = [
        0.1,
        0.0,
        0.2,
        0.0,
        0.0,
        0.7,
    ]  # around row 1 and column 2, where nothing may be attended
    mask = torch.tensor([[True, True, True, True, True, False]])
    assert weights((2, 3), past, mask, window=0) == kept(*range(5))
    assert weights((2, 3), past, mask, window=1) == kept(1, 2, 4)
