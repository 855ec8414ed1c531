"""What becomes of scores, by hand: sharpening, smoothing, windows. Gate, choice and draws: test_recurrent.py.

B images, N captions per image, L context vectors on a grid.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.parts.attention import SoftmaxAttention
from captioning.models.parts.scores import Score

E = torch.tensor([0.5, -1.0, 2.0, 0.0, 3.0, 1.0], dtype=torch.float64)


class Fixed(Score):
    """Scores that are given."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__(1)
        self.scores = scores

    def keys(self, context: ContextSet) -> None:
        return None

    def forward(self, keys: None, query: Tensor, past: Tensor | None = None) -> Tensor:
        return self.scores.expand(*query.shape[:2], -1)


def attending(grid: tuple[int, int] = (1, 6), **how: Any) -> SoftmaxAttention:
    return SoftmaxAttention(1, 1, grid, lambda **_: Fixed(E), **how)


def weights(grid: tuple[int, int] = (1, 6), past: Tensor | None = None, mask: Tensor | None = None, **how: Any) -> Any:
    attention = attending(grid, **how)
    image = attention.read(ContextSet(torch.arange(6.0).double().view(1, 6, 1), grid, mask))
    look = attention(image, torch.zeros(1, 1, 1).double(), None if past is None else past.view(1, 1, 6).double())
    alpha = look.alpha.flatten()
    torch.testing.assert_close(look.context.flatten(), (alpha @ torch.arange(6.0).double())[None])
    return alpha.tolist()


def shares(amounts: list[float]) -> Any:
    return pytest.approx([amount / sum(amounts) for amount in amounts], abs=1e-12)


def test_softmax() -> None:
    assert weights() == shares([math.exp(e) for e in E.tolist()])


def test_a_temperature_below_one_sharpens() -> None:
    assert weights(temperature=0.25) == shares([math.exp(4 * e) for e in E.tolist()])


def test_smoothing_takes_sigmoids() -> None:
    assert weights(smoothing=True) == shares([1 / (1 + math.exp(-e)) for e in E.tolist()])
    assert weights(smoothing=True, temperature=0.5) == shares([1 / (1 + math.exp(-2 * e)) for e in E.tolist()])


def test_smoothing_with_a_bias_has_a_threshold_that_is_learned() -> None:
    attention = attending(smoothing=True, temperature=0.5, energy_bias=True)
    assert attention.energy_bias is not None
    with torch.no_grad():
        attention.energy_bias.fill_(-1.5)
    image = attention.read(ContextSet(torch.zeros(1, 6, 1, dtype=torch.float64), (1, 6)))
    alpha = attention(image, torch.zeros(1, 1, 1).double()).alpha
    assert alpha.flatten().tolist() == shares([1 / (1 + math.exp(-2 * (e - 1.5))) for e in E.tolist()])
    assert not list(attending(energy_bias=True).parameters())  # a softmax would not notice


def kept(*places: int) -> Any:
    return shares([math.exp(e) if i in places else 0.0 for i, e in enumerate(E.tolist())])


def test_a_window_lies_around_the_median_of_the_last_weights() -> None:
    past = torch.tensor([0.1, 0.2, 0.1, 0.3, 0.2, 0.1])  # half lies at or before place 3
    assert weights(past=past, window=1) == kept(2, 3, 4)
    assert weights(past=past, window=0) == kept(3)
    assert weights(past=past.roll(-3), window=1) == kept(0, 1, 2)
    assert weights(window=1) == kept(*range(6))  # the first step sees all
    assert weights(past=past) == kept(*range(6))


def test_a_window_on_a_grid_has_rows_and_columns() -> None:
    past = torch.tensor([0.0, 0.1, 0.6, 0.1, 0.1, 0.1])  # rows of three: row 0, column 2
    assert weights((2, 3), past, window=0) == kept(2)
    assert weights((2, 3), past, window=1) == kept(1, 2, 4, 5)


def test_a_window_without_anything_to_attend_is_none() -> None:
    past = torch.tensor([0.1, 0.0, 0.2, 0.0, 0.0, 0.7])  # around row 1 and column 2, where nothing may be attended
    mask = torch.tensor([[True, True, True, True, True, False]])
    assert weights((2, 3), past, mask, window=0) == kept(*range(5))
    assert weights((2, 3), past, mask, window=1) == kept(1, 2, 4)
