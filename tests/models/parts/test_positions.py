"""Every entry of the positional encodings by the formula of Vaswani et al., section 3.5."""

import math

import pytest
import torch

from captioning.models.parts.positions import resized, sinusoidal, sinusoidal_2d


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


def test_resized_for_another_grid() -> None:
    """Of a plane the cubic interpolation is the plane; a place's middle is half a place from its edges."""
    grid, other = (6, 16), (12, 8)

    def plane(h: int, w: int) -> torch.Tensor:
        rows, columns = (torch.arange(n).double() / n + 0.5 / n for n in (h, w))
        return torch.stack([rows[:, None].expand(h, w), rows[:, None] - 3 * columns], dim=-1)

    found = resized(plane(*grid).flatten(0, 1), grid, other).unflatten(0, other)
    inner = slice(4, -4), slice(2, -2)  # beyond the edge there is no plane
    torch.testing.assert_close(found[inner], plane(*other)[inner], rtol=0, atol=1e-12)
    assert torch.equal(resized(plane(*grid).flatten(0, 1), grid, grid), plane(*grid).flatten(0, 1))
