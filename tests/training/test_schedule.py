import math

import pytest
import torch

from captioning.training.schedule import warmup_decay


def rates(steps: int, **settings: float | str) -> list[float]:
    """The rate of each step, of a peak of 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = warmup_decay(optimizer, **settings)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_constant() -> None:
    assert rates(5, total_steps=4) == [1.0] * 5
    assert rates(3, total_steps=4, final=0.1) == [1.0] * 3


def test_warm_up_reaches_the_peak_at_its_last_step() -> None:
    assert rates(6, total_steps=6, warmup_steps=4) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_linear_by_hand() -> None:
    assert rates(6, total_steps=4, decay="linear", final=0.0) == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0])
    assert rates(5, total_steps=4, decay="linear", final=0.2) == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    assert rates(7, total_steps=6, warmup_steps=2, decay="linear") == pytest.approx([0.5, 1, 1, 0.75, 0.5, 0.25, 0])


def test_cosine_by_hand() -> None:
    half = math.sqrt(0.5) / 2
    assert rates(6, total_steps=4, decay="cosine") == pytest.approx([1, 0.5 + half, 0.5, 0.5 - half, 0, 0], abs=1e-12)
    assert rates(5, total_steps=4, decay="cosine", final=0.2)[2:] == pytest.approx([0.6, 0.6 - 0.8 * half, 0.2])


def test_warm_up_longer_than_the_training() -> None:
    assert rates(3, total_steps=3, warmup_steps=10, decay="linear") == pytest.approx([0.1, 0.2, 0.3])


def test_unknown_decay_names_the_allowed() -> None:
    with pytest.raises(
        ValueError, match="decay=exponential is not allowed; it must be one of constant, linear, cosine"
    ):
        rates(1, total_steps=1, decay="exponential")
