import pytest
import torch

from captioning.data.mirror import Mirror


def test_the_columns_of_the_grid_are_exchanged() -> None:
    features = torch.arange(12.0).view(1, 6, 2)  # a grid of two rows and three columns
    mirrored = Mirror(1.0, (2, 3), seed=0)(features, [0], 0)
    assert mirrored[0, :, 0].tolist() == [4, 2, 0, 10, 8, 6]
    assert mirrored[0, :, 1].tolist() == [5, 3, 1, 11, 9, 7]


def test_so_are_the_columns_of_pixels() -> None:
    photograph = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint8).expand(1, 3, 2, 3)
    mirrored = Mirror(1.0, (14, 14), seed=0)(photograph, [0], 0)
    assert mirrored.dtype == torch.uint8
    assert mirrored[0].tolist() == 3 * [[[3, 2, 1], [6, 5, 4]]]


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_each_epoch_draws_anew_whatever_the_batch(probability: float) -> None:
    mirror = Mirror(probability, (1, 2), seed=5)
    images = torch.tensor([[[0.0], [1.0]]]).repeat(2000, 1, 1)

    def shown(epoch: int, positions: list[int]) -> list[bool]:
        return (mirror(images[: len(positions)], positions, epoch)[:, 0, 0] == 1).tolist()

    whole = shown(0, list(range(2000)))
    assert sum(whole) / 2000 == pytest.approx(probability, abs=0.04)  # four standard deviations
    assert shown(0, [1999, 7, 7]) == [whole[1999], whole[7], whole[7]]
    another = shown(1, list(range(2000)))
    same = sum(a == b for a, b in zip(whole, another, strict=True)) / 2000
    assert same == pytest.approx(probability**2 + (1 - probability) ** 2, abs=0.05)
