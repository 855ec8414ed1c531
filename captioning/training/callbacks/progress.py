"""Training progress: Lightning's bars on a terminal, lines in a log file."""

import logging
import math
import sys
import time
from collections.abc import Iterable
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar

from captioning.config.types import NotNegative, NotNegativeInt, validated
from captioning.metrics.table import HEADLINES, SCORES, score_called
from captioning.progress import EVERY, duration, has_bars

STEPS, SECONDS = 3, 5.0
"""After which the time of training is estimated, both at least, without the first step."""

log = logging.getLogger(__name__)


class Progress(TQDMProgressBar):
    """Show bars on a terminal, elsewhere lines, and a line with the scores of each validation.

    Bars are updated every `refresh_rate` batches, 0 is for lines alone; a line is written every
    `every_seconds`. Only rank 0 shows anything.
    """

    _next = 0.0
    # step and time, while it trains; after the first step, which is slower
    _start: tuple[int, float] | None = None
    _first = _estimated = False

    @validated
    def __init__(self, refresh_rate: NotNegativeInt = 10, every_seconds: NotNegative = EVERY):
        super().__init__(
            refresh_rate=refresh_rate if has_bars(sys.stdout) and has_bars(sys.stderr) else 0
        )
        self.every_seconds = every_seconds

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        super().on_train_start(trainer)
        if not trainer.should_stop:  # else it is finished, and only tested
            self._start = trainer.global_step, time.monotonic()
            self._first, self._estimated = True, False
            done = f", of which {trainer.global_step:,} are done" if trainer.global_step else ""
            self._write(f"training: {trainer.estimated_stepping_batches:,} steps{done}")

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        super().on_train_epoch_start(trainer)
        if self.refresh_rate:  # Lightning counts from 0
            self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}")

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        super().on_train_batch_end(trainer, *rest)
        step, now = trainer.global_step, time.monotonic()
        first, start = self._start or (step, now)
        if self._first and step > first:
            self._start, self._first = (step, now), False
        elif not self._estimated and step - first >= STEPS and now - start >= SECONDS:
            self._estimated = True
            if left := self._left(trainer):
                self._write(f"training will take about {duration(left)}")
        if not self.refresh_rate and now >= self._next:
            self._write(self._line(trainer))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        if self._start and not trainer.sanity_checking:
            self._write(self._line(trainer, HEADLINES))

    def on_test_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        self._write("test: scoring the captions ...")  # for which Java may take a minute

    def on_train_end(self, trainer: Trainer, *_: Any) -> None:
        super().on_train_end(trainer)
        if self._start:
            for stop in trainer.early_stopping_callbacks:
                epoch, reason = stop.stopped_epoch + 1, stop.stopping_reason_message
                if reason and trainer.should_stop and epoch != trainer.max_epochs:
                    self._write(f"training ends early, after epoch {epoch}: {reason}")
        self._start = None

    def get_metrics(
        self, trainer: Trainer, pl_module: Any, names: Iterable[str] = ()
    ) -> dict[str, Any]:
        """The loss, `names` and others of the last validation, and the best score, as printed."""
        checkpoint: Any = trainer.checkpoint_callback
        logged = trainer.callback_metrics
        shown = {"loss": f"{float(logged['train/nll']):.3f}"} if "train/nll" in logged else {}
        own = checkpoint.monitor.removeprefix("val/")
        corpus = getattr(pl_module.latest.get("val"), "corpus", {})
        others = corpus.keys() - SCORES.keys()
        for name in dict.fromkeys([*names, *sorted(others), own] if names else ()):
            # What failed is logged with its value of an earlier validation.
            value = corpus.get(name, logged.get(f"val/{name}", math.nan))
            if math.isfinite(value):
                shown[name] = score_called(name).printed(float(value))
        # the checkpoint is chosen after this
        scores = checkpoint.best_model_score, logged.get(checkpoint.monitor)
        if known := [float(score) for score in scores if score is not None]:
            best = min(known) if checkpoint.mode == "min" else max(known)
            shown[f"best {own}"] = score_called(own).printed(best)
        return shown

    def _line(self, trainer: Trainer, names: Iterable[str] = ()) -> str:
        step, total = trainer.global_step, trainer.estimated_stepping_batches
        epochs = f"/{trainer.max_epochs}" if (trainer.max_epochs or 0) > 0 else ""
        steps = f"/{total:,}" if math.isfinite(total) else ""
        parts = [f"epoch {trainer.current_epoch + 1}{epochs}", f"step {step:,}{steps}"]
        if left := self._left(trainer):
            parts.append(f"{duration(left)} left")
        shown = self.get_metrics(trainer, trainer.lightning_module, names)
        parts += [f"{name} {value}" for name, value in shown.items()]
        return ", ".join(parts)

    def _left(self, trainer: Trainer) -> float | None:
        """Seconds of training to come, by those of its steps until now."""
        step, total = trainer.global_step, trainer.estimated_stepping_batches
        first, start = self._start or (step, 0.0)
        if not first < step < total < math.inf:
            return None
        return (total - step) * (time.monotonic() - start) / (step - first)

    def _write(self, text: str) -> None:
        if self.refresh_rate:
            self.print(text)
        elif self._enabled:
            log.info(text)
        self._next = time.monotonic() + self.every_seconds
