"""Training progress: Lightning's bars on a terminal, lines in a log file."""

import logging
import math
import sys
import time
from collections.abc import Iterable
from typing import Annotated, Any

import lightning as L
from annotated_types import Ge
from lightning.pytorch.callbacks import TQDMProgressBar

from captioning.config.types import NotNegative, validated
from captioning.metrics.metric import MAIN
from captioning.metrics.table import SCORES, score_called
from captioning.progress import EVERY, duration, on_terminal

SHOWN = {score.metric: score.name for score in SCORES.values() if score.group == MAIN}
"""One score per metric (for BLEU, the longest n-grams); the score that selects the checkpoint is
added.
"""

log = logging.getLogger(__name__)


class Progress(TQDMProgressBar):
    """Show bars on a terminal, elsewhere lines, and a line with the scores of each validation.

    Bars are updated every `refresh_rate` batches, 0 is for lines alone; a line is written every
    `every_seconds`. Only rank 0 shows anything.
    """

    @validated
    def __init__(
        self, refresh_rate: Annotated[int, Ge(0)] = 10, every_seconds: NotNegative = EVERY
    ) -> None:
        bars = on_terminal() and sys.stdout.isatty()
        super().__init__(refresh_rate=refresh_rate if bars else 0)
        self.every_seconds, self._is_training, self._next = every_seconds, False, 0.0
        self._best: float | None = None

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        """The loss, and the best score so far."""
        return self._values(trainer)

    def on_train_start(self, trainer: L.Trainer, *_: Any) -> None:
        super().on_train_start(trainer)
        if trainer.should_stop:  # a finished training, which is only tested
            return
        self._is_training, self._start = True, (trainer.global_step, time.monotonic())
        checkpoint: Any = trainer.checkpoint_callback
        self._monitor, self._is_lowest = str(checkpoint.monitor), checkpoint.mode == "min"
        self._name = self._monitor.removeprefix("val/")
        if checkpoint.best_model_score is not None:
            self._best = float(checkpoint.best_model_score)
        done = f", of which {trainer.global_step:,} are done" if trainer.global_step else ""
        self._write(f"training: {trainer.estimated_stepping_batches:,} steps{done}")

    def on_train_batch_end(self, trainer: L.Trainer, *rest: Any) -> None:
        super().on_train_batch_end(trainer, *rest)
        if self._is_due:
            self._write(self._line(trainer, self._values(trainer)))

    def on_validation_batch_end(self, trainer: L.Trainer, *rest: Any) -> None:
        super().on_validation_batch_end(trainer, *rest)
        if self._is_due and not trainer.sanity_checking:
            self._write(f"validation: batch {rest[3] + 1:,} of {trainer.num_val_batches[0]:,}")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        if not self._is_training or trainer.sanity_checking:
            return
        score = trainer.callback_metrics.get(self._monitor)
        if score is not None:
            known = [float(score)] if self._best is None else [self._best, float(score)]
            self._best = min(known) if self._is_lowest else max(known)
        names = dict.fromkeys([*SHOWN.values(), self._name])
        self._write(self._line(trainer, self._values(trainer, names)))

    def on_test_batch_end(self, trainer: L.Trainer, *rest: Any) -> None:
        super().on_test_batch_end(trainer, *rest)
        if self._is_due:
            self._write(f"test: batch {rest[3] + 1:,} of {trainer.num_test_batches[0]:,}")

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write("test: scoring the captions ...")  # for which Java may take a minute

    def on_train_end(self, trainer: L.Trainer, *_: Any) -> None:
        super().on_train_end(trainer)
        for stop in trainer.early_stopping_callbacks if self._is_training else ():
            epoch, reason = stop.stopped_epoch + 1, stop.stopping_reason_message
            if reason and epoch != trainer.max_epochs:
                if stop.wait_count >= stop.patience:  # else the loss is not finite, or a threshold
                    reason = f"{stop.monitor} did not improve in {stop.wait_count} validations"
                self._write(f"training ends early, after epoch {epoch}: {reason}")
        self._is_training = False

    @property
    def _is_due(self) -> bool:
        return not self.refresh_rate and time.monotonic() >= self._next

    def _values(self, trainer: L.Trainer, names: Iterable[str] = ()) -> dict[str, str]:
        """The loss, scores of the last validation, and the best score, as they are printed."""
        logged = trainer.callback_metrics
        shown = {"loss": f"{float(logged['train/nll']):.3f}"} if "train/nll" in logged else {}
        for name in names:
            if f"val/{name}" in logged:
                shown[name] = score_called(name).printed(float(logged[f"val/{name}"]))
        if self._best is not None:
            shown[f"best {self._name}"] = score_called(self._name).printed(self._best)
        return shown

    def _line(self, trainer: L.Trainer, values: dict[str, str]) -> str:
        step, total = trainer.global_step, trainer.estimated_stepping_batches
        epochs = f"/{trainer.max_epochs}" if (trainer.max_epochs or 0) > 0 else ""
        steps = f"/{total:,}" if math.isfinite(total) else ""
        parts = [f"epoch {trainer.current_epoch + 1}{epochs}", f"step {step:,}{steps}"]
        first, start = self._start
        if first < step < total < math.inf:
            left = (total - step) * (time.monotonic() - start) / (step - first)
            parts.append(f"{duration(left)} left")
        return ", ".join([*parts, *(f"{name} {value}" for name, value in values.items())])

    def _write(self, text: str) -> None:
        if self.refresh_rate:
            self.print(text)
        elif self._enabled:
            log.info(text)
        self._next = time.monotonic() + self.every_seconds
