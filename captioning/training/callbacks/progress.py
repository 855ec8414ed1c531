"""What a person sees of a training: one bar on a terminal, lines in a log file."""

import logging
import math
import sys
import time
from typing import Annotated, Any

import lightning as L
from annotated_types import Ge
from lightning.pytorch.callbacks import ProgressBar

from captioning.config.types import NotNegative, validated
from captioning.progress import EVERY, bar, on_terminal
from captioning.training.account import Account

REDRAWN = 0.2
"""Seconds between two looks at the bar."""

log = logging.getLogger(__name__)


class Progress(ProgressBar):
    """Epoch, time left of the whole run, speed, learning rate, loss and the validation scores.

    On a terminal one bar has them, below a table with a row for each validation. Elsewhere there is a line every
    `every_seconds` and one for each validation, with captions per second, and an estimate after some steps. Only rank 0
    speaks.

    Args:
        refresh_rate: batches after which the bar may change; 0: lines on a terminal too.
        every_seconds: between two lines, if no validation comes.
    """

    @validated
    def __init__(self, refresh_rate: Annotated[int, Ge(0)] = 1, every_seconds: NotNegative = EVERY) -> None:
        super().__init__()
        self.refresh_rate, self.every_seconds = refresh_rate, every_seconds
        self._enabled = True
        self._account: Account | None = None
        self._headed = False
        self._bar: Any = None
        self._next = 0.0

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Says how long the training is, if it does not only end here."""
        if self._enabled and not trainer.should_stop:
            self._account, self._headed = Account(trainer), False
            log.info(self._account.plan())
            self._wait()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._account is None:
            return
        self._account.pace.step(trainer.global_step)
        self._account.loss = trainer.callback_metrics.get("train/nll")
        if self._on_bar:
            if batch_idx % self.refresh_rate == 0 and self._due:
                self._draw(self._account.short())
        elif self._due:
            self._write(self._account.line())
        elif estimate := self._account.estimate():
            log.info(estimate)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._decoded = 0
        if self._account is not None:
            self._account.pace.validation_begins()

    on_test_start = on_validation_start

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """`outputs` are the captions of the batch."""
        self._decoded += trainer.world_size * len(outputs or ())
        if self._due:
            batches = trainer.num_test_batches if trainer.testing else trainer.num_val_batches
            self._evaluating(trainer, f"batch {batch_idx + 1:,} of {batches[0]:,}")

    on_test_batch_end = on_validation_batch_end

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Lightning calls this before the module scores the captions, for which Java may take a minute."""
        if self._on_bar or trainer.testing:
            self._evaluating(trainer, f"scoring {self._decoded:,} captions ...")

    on_test_epoch_end = on_validation_epoch_end

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The module has logged the scores by now."""
        if self._account is None or trainer.sanity_checking:
            self._close()
            return
        self._account.pace.validation_ends()
        self._account.validated()
        if self._on_bar:
            self._draw(self._account.short())
            for line in [self._account.row()] if self._headed else [self._account.heading(), self._account.row()]:
                self._bar.write(line, file=sys.stderr)
            self._headed = True
        else:
            self._write(self._account.line(validation=True))

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leaves the bar where it stands."""
        self._close(leave=True)
        self._account = None

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Leaves the bar too, so that what is said of the exception has a line of its own."""
        self.on_train_end(trainer, pl_module)

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
        stage = "test" if trainer.testing else "validation"
        text = f"{self._account.epoch()}, {stage}: {doing}" if self._account else f"{stage}: {doing}"
        if self._on_bar:
            self._draw(text)
        else:
            self._write(text)

    def _draw(self, text: str) -> None:
        if self._bar is None:
            total = self._account.total if self._account else math.inf
            finite = math.isfinite(total)
            self._bar = bar(total=total if finite else None, bar_format="{desc} |{bar}|" if finite else "{desc}")
        if self._account:
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
