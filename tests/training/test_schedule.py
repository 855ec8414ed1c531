import math
from typing import Any

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


HALF = math.sqrt(0.5) / 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"total_steps": 4}, [1, 1, 1, 1, 1]),
        ({"total_steps": 4, "final": 0.1}, [1, 1, 1]),
        ({"total_steps": 6, "warmup_steps": 4}, [0.25, 0.5, 0.75, 1, 1, 1]),
        ({"total_steps": 4, "decay": "linear", "final": 0.0}, [1, 0.75, 0.5, 0.25, 0, 0]),
        ({"total_steps": 4, "decay": "linear", "final": 0.2}, [1, 0.8, 0.6, 0.4, 0.2]),
        ({"total_steps": 6, "decay": "linear", "warmup_steps": 2}, [0.5, 1, 1, 0.75, 0.5, 0.25, 0]),
        ({"total_steps": 4, "decay": "cosine"}, [1, 0.5 + HALF, 0.5, 0.5 - HALF, 0, 0]),
        ({"total_steps": 4, "decay": "cosine", "final": 0.2}, [1, 0.6 + 0.8 * HALF, 0.6, 0.6 - 0.8 * HALF, 0.2]),
        ({"total_steps": 3, "decay": "linear", "warmup_steps": 10}, [0.1, 0.2, 0.3]),
    ],
)
def test_rates_by_hand(settings: dict[str, Any], expected: list[float]) -> None:
    assert rates(len(expected), **settings) == pytest.approx(expected, abs=1e-12)
