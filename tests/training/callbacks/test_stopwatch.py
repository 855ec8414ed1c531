from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from captioning.training.callbacks.stopwatch import Stopwatch

from ..world import QUIET, Idle, loader, trainer

pytestmark = QUIET


class Scored(Idle):
    """Training of nothing whose validation scores are known."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__()
        self.scores = scores

    def validation_step(self, batch: Tensor, index: int) -> None:
        self.log("val/score", self.scores[self.current_epoch])


class Times(L.Callback):
    """The stopwatch's reading after each validation."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.stopwatch, self.seen = stopwatch, []

    def on_validation_end(self, *_: Any) -> None:
        self.seen.append((self.stopwatch.trained, self.stopwatch.to_best))


def run(stopwatch: Stopwatch, scores: list[float]) -> list[tuple[float, float]]:
    times = Times(stopwatch)
    batches = loader([torch.zeros(1)])
    trainer(max_epochs=len(scores), callbacks=[stopwatch, times]).fit(Scored(scores), batches, batches)
    return times.seen


@pytest.mark.parametrize(("mode", "scores", "best"), [("max", [1, 3, 2, 3], 1), ("min", [4.0, 5, 2, 3], 2)])
def test_time_to_the_best_validation(mode: str, scores: list[float], best: int) -> None:
    stopwatch = Stopwatch("val/score", mode)
    times = run(stopwatch, scores)
    assert [trained for trained, _ in times] == sorted(trained for trained, _ in times)
    assert times[best - 1][0] < stopwatch.to_best <= times[best][0]
    assert 0 < stopwatch.to_best < times[-1][0] <= stopwatch.trained


def test_a_resumed_run_counts_on() -> None:
    first = Stopwatch("val/score")
    run(first, [5.0])
    second = Stopwatch("val/score")
    second.load_state_dict(first.state_dict())
    run(second, [4.0])
    assert second.trained > first.trained
    assert second.to_best == first.to_best  # 4 is no better than 5
    assert second.state_dict()["best"] == 5


def test_a_score_that_is_never_logged_leaves_zero() -> None:
    stopwatch = Stopwatch("val/other")
    run(stopwatch, [1.0])
    assert stopwatch.to_best == 0
    assert stopwatch.trained > 0
