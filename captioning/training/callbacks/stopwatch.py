"""Seconds of training, for time to a score."""

import time
from typing import Literal

import lightning as L

from captioning.config.types import validated


class Stopwatch(L.Callback):
    """Measures training and validation together, from the first step, data preparation not included.

    Args:
        monitor: the validation score of which the best is kept.
        mode: max or min.

    Attributes:
        to_best: seconds until the validation that gave the best score.
    """

    @validated
    def __init__(self, monitor: str, mode: Literal["min", "max"] = "max") -> None:
        self.monitor, self.sign = monitor, 1 if mode == "max" else -1
        self.to_best = 0.0
        self._best = float("-inf")
        self._before = 0.0
        self._start: float | None = None

    @property
    def trained(self) -> float:
        """Seconds until now, or until the end of training; those before an interruption count, from its checkpoint."""
        return self._before + (0.0 if self._start is None else time.perf_counter() - self._start)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start = time.perf_counter()

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Logs `seconds`, beside the scores of the same validation."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            pl_module.log("seconds", self.trained, rank_zero_only=True)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Notes a better score; the module has logged it by now."""
        if trainer.state.fn != "fit":
            return
        score = self.sign * float(trainer.callback_metrics.get(self.monitor, float("-inf")))
        if score > self._best:
            self._best, self.to_best = score, self.trained

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._before, self._start = self.trained, None

    def state_dict(self) -> dict[str, float]:
        """For checkpoints, so that a resumed run counts on."""
        return {"trained": self.trained, "to_best": self.to_best, "best": self._best}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self._before, self.to_best, self._best = state_dict["trained"], state_dict["to_best"], state_dict["best"]
