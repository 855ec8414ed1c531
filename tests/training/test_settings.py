"""Settings that no part of a training accepts, each refused by its name; and the rates of schedules by hand."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.optim import SGD

from captioning.training.callbacks.progress import Progress
from captioning.training.callbacks.records import AttentionPanels
from captioning.training.callbacks.resume import ResumePoints
from captioning.training.callbacks.timing import Stopwatch
from captioning.training.objectives import CrossEntropy, Reinforce, SelfCritical
from captioning.training.rewards import Reward
from captioning.training.schedule import warmup_decay


def scheduled(total_steps: int = 5, **settings: Any) -> tuple[SGD, Any]:
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    return optimizer, warmup_decay(optimizer, total_steps, **settings)


rewarded = partial(SelfCritical, reward=Reward())


@pytest.mark.parametrize(
    ("part", "settings", "key"),
    [
        (CrossEntropy, {"label_smoothing": float("nan")}, "label_smoothing"),
        (CrossEntropy, {"doubly_stochastic": -1}, "doubly_stochastic"),
        (CrossEntropy, {"scheduled_sampling": 1.5}, "scheduled_sampling"),
        (Reinforce, {"samples": 1.0}, "samples"),
        (Reinforce, {"decay": 1.0}, "decay"),
        (Reinforce, {"credit": "words"}, "credit"),
        (Reinforce, {"normalise": "true"}, "normalise"),
        (rewarded, {"temperature": 0.0}, "temperature"),
        (rewarded, {"baseline": "others", "samples": 1}, "samples=1"),
        (Reward, {"cider": 0.0}, "cider=0"),
        (Reward, {"bleu4": -1.0}, "bleu4"),
        (scheduled, {"decay": "exponential"}, "decay"),
        (scheduled, {"warmup_steps": -1}, "warmup_steps"),
        (scheduled, {"final": float("inf")}, "final"),
        (ResumePoints, {"folder": ".", "every_n_steps": 0}, "every_n_steps"),
        (Progress, {"refresh_rate": -1}, "refresh_rate"),
        (Stopwatch, {"monitor": "val/CIDEr", "mode": "most"}, "mode"),
        (AttentionPanels, {"folder": ".", "images": 1, "maps": "heads"}, "maps"),
    ],
)
def test_settings_out_of_range(part: Callable[..., Any], settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        part(**settings)


HALF = math.sqrt(0.5) / 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"total_steps": 4, "final": 0.1}, [1, 1, 1, 1, 1]),
        ({"total_steps": 6, "warmup_steps": 4}, [0.25, 0.5, 0.75, 1, 1, 1]),
        ({"total_steps": 4, "decay": "linear", "final": 0.2}, [1, 0.8, 0.6, 0.4, 0.2, 0.2]),
        ({"total_steps": 6, "decay": "linear", "warmup_steps": 2}, [0.5, 1, 1, 0.75, 0.5, 0.25, 0]),
        ({"total_steps": 4, "decay": "cosine"}, [1, 0.5 + HALF, 0.5, 0.5 - HALF, 0, 0]),
        ({"total_steps": 4, "decay": "cosine", "final": 0.2}, [1, 0.6 + 0.8 * HALF, 0.6, 0.6 - 0.8 * HALF, 0.2]),
        ({"total_steps": 3, "decay": "linear", "warmup_steps": 10}, [0.1, 0.2, 0.3]),
    ],
)
def test_rates_by_hand(settings: dict[str, Any], expected: list[float]) -> None:
    (optimizer, schedule), found = scheduled(**settings), []
    for _ in expected:
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert found == pytest.approx(expected, abs=1e-12)
