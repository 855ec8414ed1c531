"""Training progress on standard error: a bar on a terminal, lines in a log file."""

import logging
import math
import sys
import time
from typing import Annotated, Any

import lightning as L
from annotated_types import Ge
from lightning.pytorch.callbacks import ProgressBar

from captioning.config.types import NotNegative, validated
from captioning.metrics.metric import MAIN
from captioning.metrics.table import SCORES, score_called
from captioning.progress import EVERY, bar, duration, on_terminal

SHOWN = {score.metric: score.name for score in SCORES.values() if score.group == MAIN}
"""One score per metric (for BLEU, the longest n-grams); the score that selects the checkpoint is
added.
"""
REDRAWN = 0.2
"""Seconds between two updates of the bar."""

log = logging.getLogger(__name__)


class Progress(ProgressBar):
    """Print training progress, and a line with the scores of each validation.

    On a terminal, one bar is updated at most every `refresh_rate` batches. Elsewhere, or with
    `refresh_rate=0`, a line is printed every `every_seconds`. Only rank 0 prints.
    """

    @validated
    def __init__(
        self, refresh_rate: Annotated[int, Ge(0)] = 1, every_seconds: NotNegative = EVERY
    ) -> None:
        super().__init__()
        self.refresh_rate, self.every_seconds = refresh_rate, every_seconds
        self._enabled, self._is_training = True, False
        self._bar: Any = None
        self._next = 0.0

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self._enabled or trainer.should_stop:
            return
        self._is_training = True
        self._total: float = trainer.estimated_stepping_batches  # infinite for unlimited training
        self._start: tuple[int, float] | None = (
            None  # after the first step, which waits for workers and compiles
        )
        self._kept: Any = trainer.checkpoint_callback
        self._monitor = str(getattr(self._kept, "monitor", None) or "")
        self._best: Any = getattr(self._kept, "best_model_score", None)
        epochs, steps = trainer.max_epochs or -1, trainer.num_training_batches
        steps = math.ceil(steps / trainer.accumulate_grad_batches)
        every = f"{epochs} epoch{'' if epochs == 1 else 's'} of {steps:,}"
        done = f", of which {trainer.global_step:,} are done" if trainer.global_step else ""
        self._write(
            f"training: {every if epochs * steps == self._total else f'{self._total:,}'} "
            f"steps{done}"
        )

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._is_training:
            self._start = self._start or (trainer.global_step, time.monotonic())
            if self._due and batch_idx % max(1, self.refresh_rate) == 0:
                self._show(self._state())

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._batches = self._decoded = 0

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any
    ) -> None:
        self._batches, self._decoded = (
            self._batches + 1,
            self._decoded + trainer.world_size * len(outputs or ()),
        )
        if self._due:
            batches = trainer.num_test_batches if trainer.testing else trainer.num_val_batches
            self._evaluating(f"batch {self._batches:,} of {batches[0]:,}")

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # before the module scores the captions, for which Java may take a minute
        if self._decoded and (self._on_bar or trainer.testing):
            self._evaluating(f"scoring {self._decoded:,} captions ...")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self._is_training or trainer.sanity_checking:
            self._close()
            return
        scores = self._scores()
        if (score := self._logged(self._monitor)) is not None:
            best = (score,) if self._best is None else (self._best, score)
            self._best = float(max(best) if self._kept.mode == "max" else min(best))
        if self._on_bar:
            self._show(self._state())
        self._write(self._state(scores))

    on_test_start, on_test_end = on_validation_start, on_validation_end
    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]
    on_test_epoch_end = on_validation_epoch_end

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close(leave=True)
        for stop in trainer.early_stopping_callbacks if self._is_training else ():
            epoch = stop.stopped_epoch + 1
            if stop.stopping_reason_message is None or epoch == trainer.max_epochs:
                continue
            reason = stop.stopping_reason_message  # of a loss that is not finite, or of a threshold
            if stop.wait_count >= stop.patience:
                reason = f"{stop.monitor} did not improve in {stop.wait_count} validations"
            self._write(f"training ends early, after epoch {epoch}: {reason}")
        self._is_training = False

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self.on_train_end(trainer, pl_module)  # the message gets a line of its own below the bar

    @property
    def _on_bar(self) -> bool:
        return self.refresh_rate > 0 and on_terminal()

    @property
    def _due(self) -> bool:
        return time.monotonic() >= self._next

    def _epoch(self) -> str:
        epochs = self.trainer.max_epochs or -1
        return f"epoch {self.trainer.current_epoch + 1}" + (f"/{epochs}" if epochs > 0 else "")

    def _state(self, scores: dict[str, str] | None = None) -> str:
        """Progress text, with the scores of a validation."""
        step = self.trainer.global_step
        parts = [
            self._epoch(),
            f"step {step:,}" + (f"/{self._total:,}" if math.isfinite(self._total) else ""),
        ]
        if self._start is not None and step > self._start[0]:
            left = (
                (self._total - step) * (time.monotonic() - self._start[1]) / (step - self._start[0])
            )
            parts += [f"{duration(left)} left"] if 0 < left < math.inf else []
        if (loss := self._logged("train/nll")) is not None:
            parts.append(f"loss {loss:.3f}")
        if scores:
            parts += [f"{name} {value}" for name, value in scores.items()]
        if self._best is not None:
            name = self._monitor.removeprefix("val/")
            parts.append(f"best {name} {score_called(name).printed(self._best)}")
        if not scores:
            parts += [
                f"lr {optimizer.param_groups[0]['lr']:.1e}" for optimizer in self.trainer.optimizers
            ]
        if (rate := self._logged("train/captions per second")) is not None:
            parts.append(f"{rate:,.0f} captions/s")
        return ", ".join(parts)

    def _scores(self) -> dict[str, str]:
        columns = dict.fromkeys([*(f"val/{name}" for name in SHOWN.values()), self._monitor])
        values = {name.removeprefix("val/"): self._logged(name) for name in columns}
        return {
            name: score_called(name).printed(value)
            for name, value in values.items()
            if value is not None
        }

    def _logged(self, name: str) -> float | None:
        value = self.trainer.callback_metrics.get(name)
        return None if value is None else float(value)  # synchronises with the device

    def _evaluating(self, doing: str) -> None:
        if self._enabled and not self.trainer.sanity_checking:
            stage = f"{'test' if self.trainer.testing else 'validation'}: {doing}"
            self._show(f"{self._epoch()}, {stage}" if self._is_training else stage)

    def _show(self, text: str) -> None:
        """Update the bar, or write a line."""
        if not self._on_bar:
            self._write(text)
            return
        if self._bar is None:
            total = self._total if self._is_training and math.isfinite(self._total) else None
            self._bar = bar(total=total, bar_format="{desc} |{bar}|" if total else "{desc}")
        if self._is_training:
            self._bar.n = self.trainer.global_step
        self._bar.set_description_str(text)
        self._next = time.monotonic() + REDRAWN

    def _write(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            log.info(text)
        self._next = time.monotonic() + (REDRAWN if self._on_bar else self.every_seconds)

    def _close(self, leave: bool = False) -> None:
        if self._bar is not None:
            self._bar.leave = leave
            self._bar.close()
            self._bar = None
