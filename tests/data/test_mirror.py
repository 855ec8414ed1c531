from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from captioning.data.mirror import Mirror


class Negative:
    """Photographs of two features, 1000 times their position and 1 more; mirrored they are negative."""

    pixels = False

    def rows(self, indices: Sequence[int]) -> Tensor:
        return -plain(indices)


def plain(indices: Sequence[int]) -> Tensor:
    return torch.tensor([[[1000.0 * i, 1000.0 * i + 1]] for i in indices])


def test_the_chosen_rows_come_from_the_mirrored_photographs() -> None:
    inputs = plain([5, 3, 5])
    assert Mirror(1.0, Negative(), seed=0)(inputs, [5, 3, 5], 0).tolist() == (-plain([5, 3, 5])).tolist()
    assert Mirror(0.0, Negative(), seed=0)(inputs, [5, 3, 5], 0).tolist() == plain([5, 3, 5]).tolist()
    assert inputs.tolist() == plain([5, 3, 5]).tolist()  # what is cached stays as it is


@pytest.mark.parametrize("probability", [0.3, 0.5])
def test_each_epoch_draws_anew_whatever_the_batch(probability: float) -> None:
    mirror = Mirror(probability, Negative(), seed=5)

    def shown(epoch: int, positions: list[int]) -> list[bool]:
        view = mirror(plain(positions), positions, epoch)
        assert view.abs().tolist() == plain(positions).tolist()
        return (view[:, 0, 1] < 0).tolist()

    whole = shown(0, list(range(2000)))
    assert sum(whole) / 2000 == pytest.approx(probability, abs=0.04)  # four standard deviations
    assert shown(0, [1999, 7, 7]) == [whole[1999], whole[7], whole[7]]
    another = shown(1, list(range(2000)))
    same = sum(a == b for a, b in zip(whole, another, strict=True)) / 2000
    assert same == pytest.approx(probability**2 + (1 - probability) ** 2, abs=0.05)
