"""Seconds of training, and captions per second."""

import time
from typing import Any, Literal

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Timer
from torch import Tensor

from captioning.config.types import validated
from captioning.data.batch import Batch


class Stopwatch(Timer):
    """Measure training time, including validation, and `to_best`.

    That is until the best score of `monitor`.
    """

    @validated
    def __init__(self, monitor: str, mode: Literal["min", "max"] = "max"):
        super().__init__()
        self.monitor, self.sign = monitor, 1 if mode == "max" else -1
        self.to_best, self._best = 0.0, float("-inf")

    @property
    def trained(self) -> float:
        """Seconds of training so far, including those before resuming."""
        return self.time_elapsed()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            pl_module.log("seconds", self.trained, rank_zero_only=True)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        score = self.sign * float(trainer.callback_metrics.get(self.monitor, float("-inf")))
        if trainer.state.fn == "fit" and score > self._best:
            self._best, self.to_best = score, self.trained

    def state_dict(self) -> dict[str, Any]:
        return {"trained": self.trained, "to_best": self.to_best, "best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({"time_elapsed": {"train": state_dict["trained"]}})
        self.to_best, self._best = state_dict["to_best"], state_dict["best"]


class Throughput(Callback):
    """Log `train/captions per second` of all processes, excluding validation.

    Captions are counted on the device, and the clock is read with the loss, so that no further
    synchronisation occurs.
    """

    _captions: Tensor | int = 0
    _seconds = 0.0
    _start: float | None = None
    _logged = 0

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if self._start is None:
            self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        self._captions = self._captions + batch.captions
        step = trainer.global_step
        # While gradients accumulate, the step number does not change.
        if step % trainer.log_every_n_steps or step == self._logged:  # type: ignore[attr-defined]
            return
        self._pause()
        speed = self._captions / self._seconds
        pl_module.log("train/captions per second", speed, reduce_fx="sum", sync_dist=True)
        self._captions, self._seconds = 0, 0.0
        self._start, self._logged = time.perf_counter(), step

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        self._pause()

    def _pause(self) -> None:
        if self._start is not None:
            self._seconds += time.perf_counter() - self._start
            self._start = None
