"""Training progress on standard error: a bar on a terminal, lines in a log file."""

import logging
import math
import sys
import time
from typing import Annotated, Any

import lightning as L
from annotated_types import Ge
from lightning.pytorch.callbacks import ProgressBar
from torch import Tensor

from captioning.config.types import NotNegative, validated
from captioning.metrics.scorer import MAIN, SCORES, score_called
from captioning.progress import EVERY, bar, duration, on_terminal

SHOWN = {score.metric: f"val/{score.name}" for score in SCORES.values() if score.group == MAIN}
"""One score of each metric, of BLEU the longest n-grams; the one that the checkpoint is kept by comes in addition."""
WIDTH = 6
"""Minimum width of a column of the table of validations."""
REDRAWN = 0.2
"""Seconds between two updates of the bar."""

log = logging.getLogger(__name__)


class Progress(ProgressBar):
    """Shows epoch, time left, speed, learning rate, loss and the validation scores.

    A terminal has one bar below a table with a row per validation. Elsewhere there is a line every `every_seconds` and
    one for each validation, with captions per second. The bar changes every `refresh_rate` batches at most; with 0, a
    terminal has lines too. Only rank 0 prints.
    """

    @validated
    def __init__(self, refresh_rate: Annotated[int, Ge(0)] = 1, every_seconds: NotNegative = EVERY) -> None:
        super().__init__()
        self.refresh_rate, self.every_seconds = refresh_rate, every_seconds
        self._enabled = True
        self._text: TrainingText | None = None
        self._headed = False
        self._bar: Any = None
        self._next = 0.0

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._enabled and not trainer.should_stop:
            self._text, self._headed = TrainingText(trainer), False
            log.info(self._text.plan())
            self._wait()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *batch: Any) -> None:
        if self._text is None:
            return
        self._text.stepped()
        if not self._on_bar:
            if self._due:
                self._write(self._text.line())
        elif batch[2] % self.refresh_rate == 0 and self._due:  # its number, after outputs and batch
            self._draw(self._text.short())

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._batches, self._decoded, self._validation_start = 0, 0, time.monotonic()

    on_test_start = on_validation_start

    def on_validation_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any) -> None:
        self._batches, self._decoded = self._batches + 1, self._decoded + trainer.world_size * len(outputs or ())
        if self._due:
            batches = trainer.num_test_batches if trainer.testing else trainer.num_val_batches
            self._evaluating(trainer, f"batch {self._batches:,} of {batches[0]:,}")

    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # before the module scores the captions, for which Java may take a minute
        if self._on_bar or trainer.testing:
            self._evaluating(trainer, f"scoring {self._decoded:,} captions ...")

    on_test_epoch_end = on_validation_epoch_end

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._text is None or trainer.sanity_checking:
            self._close()
            return
        self._text.validated(time.monotonic() - self._validation_start)
        if self._on_bar:
            self._draw(self._text.short())
            for line in [self._text.row()] if self._headed else [self._text.heading(), self._text.row()]:
                self._bar.write(line, file=sys.stderr)
            self._headed = True
        else:
            self._write(self._text.line(validation=True))

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close(leave=True)
        self._text = None

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)  # the message gets a line of its own below the bar

    @property
    def _on_bar(self) -> bool:
        return self.refresh_rate > 0 and on_terminal()

    @property
    def _due(self) -> bool:
        return time.monotonic() >= self._next

    def _wait(self) -> None:
        self._next = time.monotonic() + (REDRAWN if self._on_bar else self.every_seconds)

    def _evaluating(self, trainer: L.Trainer, doing: str) -> None:
        if not self._enabled or trainer.sanity_checking:
            return
        stage = f"{'test' if trainer.testing else 'validation'}: {doing}"
        text = f"{self._text.epoch()}, {stage}" if self._text else stage
        if self._on_bar:
            self._draw(text)
        else:
            self._write(text)

    def _draw(self, text: str) -> None:
        if self._bar is None:
            finite = self._text is not None and math.isfinite(self._text.total)
            total = self._text.total if self._text and finite else None
            self._bar = bar(total=total, bar_format="{desc} |{bar}|" if finite else "{desc}")
        if self._text:
            self._bar.n = self.trainer.global_step
        self._bar.set_description_str(text)
        self._wait()

    def _write(self, text: str) -> None:
        log.info(text)
        self._wait()

    def _close(self, leave: bool = False) -> None:
        if self._bar is not None:
            self._bar.leave = leave
            self._bar.close()
            self._bar = None


class TrainingText:
    """Texts about a training in progress: step, loss, best score, time left."""

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self.total: float = trainer.estimated_stepping_batches  # infinite for a training without end
        self._loss: Tensor | None = None  # a number only where it is printed, since that waits for the device
        self._score: float | None = None
        self._better = False
        self._checkpoint: Any = trainer.checkpoint_callback
        self._monitor: str | None = getattr(self._checkpoint, "monitor", None)
        self._start: tuple[int, float] | None = None  # after the first step, which waits for workers and compiles
        self._validating = 0.0

    def stepped(self) -> None:
        """Update after a batch."""
        self._loss = self._trainer.callback_metrics.get("train/nll")
        if self._start is None:
            self._start = self._trainer.global_step, time.monotonic()

    def validated(self, seconds: float) -> None:
        """Update after a validation of that duration."""
        before = self._best()
        self._score, self._validating = self._logged(self._monitor), self._validating + seconds
        self._better = self._score is not None and (before is None or self._best() != before)

    def plan(self) -> str:
        """Length of the training."""
        epochs, steps = self._trainer.max_epochs or -1, self._trainer.num_training_batches
        done, steps = self._trainer.global_step, math.ceil(steps / self._trainer.accumulate_grad_batches)
        plural = "" if epochs == 1 else "s"
        length = f"{epochs} epoch{plural} of {steps:,}" if epochs * steps == self.total else f"{self.total:,}"
        return f"training: {length} steps" + (f", of which {done:,} are done" if done else "")

    def epoch(self) -> str:
        epochs = self._trainer.max_epochs or -1
        return f"epoch {self._trainer.current_epoch + 1}" + (f"/{epochs}" if epochs > 0 else "")

    def short(self) -> str:
        """Text of the bar."""
        rate, left = self._pace()
        rates = [group["lr"] for optimizer in self._trainer.optimizers for group in optimizer.param_groups]
        speed = None if rate is None else f"{rate:.3g} steps/s"
        lr = f"lr {rates[0]:.1e}" if rates else None
        return _joined(self.epoch(), left, speed, lr, self._loss_text())

    def heading(self) -> str:
        """Column names of `row`."""
        return "epoch" + "".join(f"  {name:>{WIDTH}}" for name in ("step", "loss", *self._scores()))

    def row(self) -> str:
        """Row of the table: scores of the latest validation, with a star if the checkpoint is better."""
        loss = "" if self._loss is None else f"{float(self._loss):.3f}"
        cells = {"step": f"{self._trainer.global_step:,}", "loss": loss, **self._scores()}
        columns = "".join(f"  {cell:>{max(WIDTH, len(name))}}" for name, cell in cells.items())
        return f"{self._trainer.current_epoch + 1:>5}{columns}{' *' if self._better else ''}"

    def line(self, validation: bool = False) -> str:
        """Line of a log file, after a validation with its scores."""
        of = f"/{self.total:,}" if math.isfinite(self.total) else ""
        scores = [f"{name} {value}" for name, value in self._scores().items()] if validation else []
        best, rate = self._best(), self._logged("train/captions per second")
        name = str(self._monitor).removeprefix("val/")
        return _joined(
            self.epoch(),
            f"step {self._trainer.global_step:,}{of}",
            self._loss_text(),
            *scores,
            None if best is None else f"best {name} {score_called(name).printed(best)}",
            None if rate is None else f"{rate:,.0f} captions/s",
            self._pace()[1],
        )

    def _logged(self, name: str | None) -> float | None:
        value = self._trainer.callback_metrics.get(name) if name else None
        return None if value is None else float(value)

    def _loss_text(self) -> str | None:
        return None if self._loss is None else f"loss {float(self._loss):.3f}"

    def _scores(self) -> dict[str, str]:
        """Printed scores of the latest validation by name."""
        names = dict.fromkeys([*SHOWN.values(), *([self._monitor] if self._monitor else [])])
        values = {name.removeprefix("val/"): self._logged(name) for name in names}
        return {name: score_called(name).printed(value) for name, value in values.items() if value is not None}

    def _best(self) -> float | None:
        """Best score of all validations; the checkpoint learns of the latest after this callback."""
        if self._monitor is None:
            return None
        scores = [float(score) for score in (self._checkpoint.best_model_score, self._score) if score is not None]
        return (max if self._checkpoint.mode == "max" else min)(scores, default=None)

    def _pace(self) -> tuple[float | None, str | None]:
        """Steps per second without validation, and the time left with as much validation as so far."""
        if self._start is None or (steps := self._trainer.global_step - self._start[0]) <= 0:
            return None, None
        seconds = time.monotonic() - self._start[1]
        left = (self.total - self._trainer.global_step) * seconds / steps
        shown = f"{duration(left)} left" if 0 < left < math.inf else None
        return steps / max(seconds - self._validating, 1e-9), shown


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)
