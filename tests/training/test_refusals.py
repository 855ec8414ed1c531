"""Settings that no part of a training accepts: each is refused by its name."""

from collections.abc import Callable
from typing import Any

import pytest
from torch.optim import SGD

from captioning.training.callbacks.progress import Progress
from captioning.training.callbacks.records import AttentionPanels
from captioning.training.callbacks.resume import ResumePoints
from captioning.training.callbacks.timing import Stopwatch
from captioning.training.objectives import CrossEntropy, Reinforce, SelfCritical
from captioning.training.rewards import Reward
from captioning.training.schedule import warmup_decay

from .world import transformer


def scheduled(**settings: Any) -> None:
    warmup_decay(SGD(transformer().parameters(), lr=1.0), 5, **settings)


def rewarded(**settings: Any) -> None:
    SelfCritical(reward=Reward(), **settings)


@pytest.mark.parametrize(
    ("part", "settings", "key"),
    [
        (CrossEntropy, {"label_smoothing": 1.0}, "label_smoothing"),
        (CrossEntropy, {"label_smoothing": float("nan")}, "label_smoothing"),
        (CrossEntropy, {"doubly_stochastic": -1}, "doubly_stochastic"),
        (CrossEntropy, {"scheduled_sampling": 1.5}, "scheduled_sampling"),
        (Reinforce, {"samples": 0}, "samples"),
        (Reinforce, {"samples": 1.0}, "samples"),
        (Reinforce, {"sample_probability": -0.1}, "sample_probability"),
        (Reinforce, {"decay": 1.0}, "decay"),
        (Reinforce, {"credit": "words"}, "credit"),
        (Reinforce, {"normalise": "true"}, "normalise"),
        (rewarded, {"temperature": 0.0}, "temperature"),
        (rewarded, {"baseline": "others", "samples": 1}, "samples=1"),
        (rewarded, {"baseline": "mean", "samples": 1}, "samples=1"),
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
