"""What there is to say of a training that is under way: where it is, how it does, how long it still takes."""

import math
from typing import Any

import lightning as L
from torch import Tensor

from captioning.progress import duration
from captioning.training.pace import Pace

SHOWN = ("val/BLEU-4", "val/METEOR", "val/CIDEr")
"""Scores of a validation, beside the one that the checkpoint is kept by."""
WIDTH = 6
"""Characters of a column of their table, at least."""
ESTIMATED_AFTER = 20
"""Steps."""


class Account:
    """Texts on a training that has been set up.

    Args:
        trainer: that trains.

    Attributes:
        pace: to be told of steps and validations.
        loss: the latest; it is read only where it is said, since that waits for the device.
        total: optimiser steps of the whole run; infinite for one without end.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self.pace = Pace()
        self.loss: Tensor | None = None
        self.total: float = trainer.estimated_stepping_batches
        self._score: float | None = None
        self._better = False
        self._estimated = False
        kept: Any = trainer.checkpoint_callback
        self._monitor: str | None = getattr(kept, "monitor", None)
        self._kept = kept if self._monitor else None
        self._per_epoch = trainer.num_training_batches / trainer.accumulate_grad_batches

    def plan(self) -> str:
        """How long the training is."""
        epochs, steps, done = self._trainer.max_epochs or -1, math.ceil(self._per_epoch), self._trainer.global_step
        whole = (
            f"{epochs} epoch{'' if epochs == 1 else 's'} of {steps:,} steps"
            if epochs * steps == self.total
            else f"{self.total:,} steps"
        )
        return f"training: {whole}" + (f", of which {done:,} are done" if done else "")

    def estimate(self) -> str | None:
        """How long it will take, once, when that is known."""
        rate, left = self.pace.steps_per_second, self._left()
        if self._estimated or rate is None or left is None or self.pace.steps < ESTIMATED_AFTER:
            return None
        self._estimated = True
        counted = self.pace.validations or math.isinf(self._period())
        return f"about {duration(left)} at {rate:.3g} steps/s" + ("" if counted else ", validation not counted")

    def validated(self) -> None:
        """Takes note of the scores of a validation."""
        before = self._best()
        self._score = self._logged(self._monitor)
        self._better = self._score is not None and (before is None or self._best() != before)

    def epoch(self) -> str:
        """The epoch, of how many."""
        epochs = self._trainer.max_epochs or -1
        return f"epoch {self._trainer.current_epoch + 1}" + (f"/{epochs}" if epochs > 0 else "")

    def short(self) -> str:
        """Where the training is, in one line of a terminal."""
        rate = self.pace.steps_per_second
        rates = [group["lr"] for optimizer in self._trainer.optimizers for group in optimizer.param_groups]
        return _joined(
            self.epoch(),
            self._time(),
            None if rate is None else f"{rate:.3g} steps/s",
            f"lr {rates[0]:.1e}" if rates else None,
            self._said_loss(),
        )

    def heading(self) -> str:
        """Names the columns of `row`."""
        return "epoch" + "".join(f"  {name:>{WIDTH}}" for name in ("step", "loss", *map(_name, self._scores())))

    def row(self) -> str:
        """Scores of the latest validation, for a terminal; a star marks what the checkpoint is kept of."""
        loss = "" if self.loss is None else f"{float(self.loss):.3f}"
        cells = {"step": f"{self._trainer.global_step:,}", "loss": loss}
        cells |= {_name(name): f"{value:.1f}" for name, value in self._scores().items()}
        columns = "".join(f"  {cell:>{max(WIDTH, len(name))}}" for name, cell in cells.items())
        return f"{self._trainer.current_epoch + 1:>5}{columns}{' *' if self._better else ''}"

    def line(self, validation: bool = False) -> str:
        """All of it for a log file, behind a validation with its scores."""
        step, best = f"step {self._trainer.global_step:,}", self._best()
        rate = self._logged("train/captions per second")
        scores = [f"{_name(name)} {value:.1f}" for name, value in (self._scores() if validation else {}).items()]
        return _joined(
            self.epoch(),
            step + (f"/{self.total:,}" if math.isfinite(self.total) else ""),
            self._said_loss(),
            *scores,
            None if best is None else f"best {_name(self._monitor)} {best:.1f}",
            None if rate is None else f"{rate:,.0f} captions/s",
            self._time(),
        )

    def _logged(self, name: str | None) -> float | None:
        value = self._trainer.callback_metrics.get(name) if name else None
        return None if value is None else float(value)

    def _said_loss(self) -> str | None:
        return None if self.loss is None else f"loss {float(self.loss):.3f}"

    def _scores(self) -> dict[str | None, float]:
        """Of the latest validation, by their names."""
        names = dict.fromkeys([*SHOWN, self._monitor])
        return {name: value for name in names if (value := self._logged(name)) is not None}

    def _best(self) -> float | None:
        """Of all validations, also those before an interruption; the checkpoint hears of the latest after this does."""
        if self._kept is None:
            return None
        scores = [float(score) for score in (self._kept.best_model_score, self._score) if score is not None]
        return (max if self._kept.mode == "max" else min)(scores, default=None)

    def _time(self) -> str | None:
        left = self._left()
        return f"{duration(left)} left" if left else None

    def _left(self) -> float | None:
        """Seconds until the end of the training, which an early stopping may bring nearer."""
        if math.isinf(self.total):
            return None
        done, period = self._trainer.global_step, self._period()
        return self.pace.left(self.total - done, self.total // period - done // period)

    def _period(self) -> float:
        """Optimiser steps from one validation to the next."""
        trainer = self._trainer
        batches, every = trainer.val_check_batch, trainer.check_val_every_n_epoch
        if not trainer.enable_validation or batches is None:
            return math.inf
        if every is not None and batches >= trainer.num_training_batches:
            return math.ceil(self._per_epoch) * every
        return max(batches / trainer.accumulate_grad_batches, 1)


def _name(score: str | None) -> str:
    return (score or "").removeprefix("val/")


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)
