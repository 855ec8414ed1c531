"""Every entry of the positional encodings by the formula of Vaswani et al., section 3.5."""

import math

import pytest
import torch

from captioning.models.parts.positions import sinusoidal, sinusoidal_2d


def entry(position: int, feature: int, features: int) -> float:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d)), PE(pos, 2i + 1) = cos of the same angle."""
    angle = position / 10000 ** ((feature - feature % 2) / features)
    return math.cos(angle) if feature % 2 else math.sin(angle)


@pytest.mark.parametrize(("length", "features"), [(7, 10), (13, 11), (1, 2), (5, 1), (196, 512)])
def test_one_dimension(length: int, features: int) -> None:
    table = sinusoidal(length, features)
    assert table.shape == (length, features)
    assert table.dtype == torch.float32
    expected = [[entry(t, k, features) for k in range(features)] for t in range(length)]
    torch.testing.assert_close(table.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-7)


@pytest.mark.parametrize(("h", "w", "features"), [(3, 5, 14), (5, 2, 11), (1, 1, 4), (2, 7, 6), (1, 3, 2)])
def test_two_dimensions(h: int, w: int, features: int) -> None:
    table = sinusoidal_2d((h, w), features)
    assert table.shape == (h * w, features)
    half = features // 2
    for row in range(h):
        for column in range(w):
            expected = [entry(row, k, half) for k in range(half)]
            expected += [entry(column, k, features - half) for k in range(features - half)]
            assert table[row * w + column].tolist() == pytest.approx(expected, abs=1e-7), (row, column)
