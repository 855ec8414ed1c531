"""The score that a training begins with, where it goes on from a checkpoint."""

import logging
from typing import Any

from lightning import Callback

from captioning.metrics.table import score_called

log = logging.getLogger(__name__)


class InitialScore(Callback):
    """Validate before the first step, and keep these weights until others are better.

    Later ones may all be worse, as in self-critical training with a high rate. Early stopping and
    schedules do not count this validation, and every batch has random numbers of its own, so that
    the training is the same as without it.
    """

    def __init__(self) -> None:
        # the monitored score before the first step, then of each validation
        self.scores: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"scores": self.scores}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scores = state_dict["scores"]

    def on_sanity_check_end(self, trainer: Any, *_: Any) -> None:
        checkpoint = trainer.checkpoint_callback
        value = trainer.callback_metrics.get(checkpoint.monitor)
        if value is None:  # it is a statistic of another callback
            return
        self.scores.append(float(value))
        path = checkpoint.format_checkpoint_name({})
        checkpoint.best_model_path = checkpoint.kth_best_model_path = path
        checkpoint.best_model_score = checkpoint.kth_value = value
        checkpoint.best_k_models = {path: value}
        trainer.save_checkpoint(path)

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        if self.scores:  # this is a later one
            monitor = trainer.checkpoint_callback.monitor
            self.scores.append(float(trainer.callback_metrics[monitor]))

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        checkpoint = trainer.checkpoint_callback
        if len(self.scores) < 2:
            return
        before, *later = self.scores
        best = max(later) if checkpoint.mode == "max" else min(later)
        score = score_called(checkpoint.monitor.removeprefix("val/"))
        numbers = score.printed(best), score.printed(before)
        kept = ", which best.ckpt keeps" if checkpoint.best_model_score == before else ""
        log.info("best %s %s, init_from had %s%s", score.name, *numbers, kept)
