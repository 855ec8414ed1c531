"""The numbers are those of SplitMix64, which is written here once more, in whole numbers of Python and step by step."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from captioning.training.objectives import BatchRandom

SEED, STEP = 11, 5


def split_mix_64(state: int) -> Iterator[int]:
    """Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        yield z ^ (z >> 31)


def number(seed: int, *key: int) -> float:
    """The leading 24 bits of the output that the key names, level by level."""
    for part in key:
        seed = next(value for i, value in enumerate(split_mix_64(seed)) if i == part)
    return (seed >> 40) / 2**24


def draws(*index: int, seed: int = SEED, step: int = STEP) -> BatchRandom:
    return BatchRandom(seed, step, torch.tensor(index))


def test_generator_of_this_test_has_the_published_outputs() -> None:
    generator = split_mix_64(1234567)
    assert [next(generator) for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (7, 1), (2**32 - 1, 997)])
def test_numbers_by_plain_integers(seed: int, step: int) -> None:
    index = [3, 0, 811, 3]
    found = draws(*index, seed=seed, step=step)
    assert found.uniform().tolist() == [number(seed, step, i) for i in index]
    expected = [[[number(seed, step, i, n, t) for t in range(3)] for n in range(2)] for i in index]
    assert found.uniform(2, 3).tolist() == expected


def test_numbers_depend_on_nothing_but_their_key() -> None:
    """Not on the other images, on their order, or on how many captions, samples and words the batch has."""
    whole = draws(4, 9, 2).uniform(5, 3, 7)
    assert torch.equal(draws(2, 4).uniform(5, 3, 7), whole[[2, 0]])
    assert torch.equal(draws(9).uniform(2, 1, 4)[0], whole[1, :2, :1, :4])


def chi_square(numbers: Tensor, cells: int = 20) -> float:
    counts = (numbers.flatten() * cells).long().bincount(minlength=cells)
    expected = numbers.numel() / cells
    return ((counts - expected).square() / expected).sum().item()


def test_numbers_are_uniform_along_every_part_of_the_key() -> None:
    many, reach = 5000, 50.8  # with probability 1e-4, at 19 degrees of freedom
    steps = torch.cat([draws(1, step=step).uniform() for step in range(many)])
    seeds = torch.cat([draws(1, seed=seed).uniform() for seed in range(many)])
    for found in (steps, seeds, draws(*range(many)).uniform(), draws(1).uniform(many), draws(1).uniform(2, many)[:, 1]):
        assert (found.numel(), found.dtype) == (many, torch.float32)
        assert 0 <= found.min() < found.max() < 1
        assert chi_square(found) < reach


def test_neighbours_are_not_correlated() -> None:
    """The correlation of n independent pairs is away from 0 by about 1 / sqrt(n)."""
    found = torch.stack([draws(*range(30), step=step).uniform(20, 10) for step in range(2)]).double() - 0.5
    for axis in range(4):
        size = found.shape[axis] - 1
        a, b = found.narrow(axis, 0, size), found.narrow(axis, 1, size)
        correlation = (a * b).mean() / found.square().mean()
        assert abs(correlation.item()) < 4 / math.sqrt(a.numel()), axis
