"""Captions per second of training."""

import time

import lightning as L
from torch import Tensor

from captioning.data.batch import Batch


class Throughput(L.Callback):
    """Logs `train/captions per second` of all processes together, beside the loss and since it was last logged.

    Validation does not count. Captions are counted on the device and the clock is read where the loss is read anyway,
    so that nothing waits for the device.
    """

    def __init__(self) -> None:
        self._captions: Tensor | int = 0
        self._seconds = 0.0
        self._start: float | None = None
        self._logged = 0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        if self._start is None:
            self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: object, batch: Batch, batch_idx: int
    ) -> None:
        """Counts; logs and starts afresh after the steps that Lightning logs."""
        self._captions = self._captions + batch.captions
        step = trainer.global_step
        # While gradients accumulate, the number of steps is still the one that was logged.
        if step % trainer.log_every_n_steps or step == self._logged:  # type: ignore[attr-defined]
            return
        self._pause()
        pl_module.log("train/captions per second", self._captions / self._seconds, reduce_fx="sum", sync_dist=True)
        self._captions, self._seconds, self._start, self._logged = 0, 0.0, time.perf_counter(), step

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._pause()

    def _pause(self) -> None:
        if self._start is not None:
            self._seconds += time.perf_counter() - self._start
            self._start = None
