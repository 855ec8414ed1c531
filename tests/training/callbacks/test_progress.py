from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from captioning.training.callbacks.progress import Progress
from captioning.training.callbacks.resume_points import ResumePoints

from ..world import QUIET, Idle, loader, trainer

pytestmark = QUIET

BATCHES = 10


class Ends(L.Callback):
    """Training with a fault, before the seventh batch."""

    def on_train_batch_start(self, trainer: L.Trainer, module: L.LightningModule, batch: Tensor, index: int) -> None:
        if index == 6:
            raise RuntimeError("a fault")


class Looks(L.Callback):
    """What the bar shows after each batch."""

    def __init__(self, bar: Progress) -> None:
        self.bar, self.seen = bar, []

    def on_train_batch_end(self, *_: Any) -> None:
        shown = self.bar.train_progress_bar.format_dict
        self.seen.append((shown["prefix"], shown["initial"], shown["n"], shown["total"]))


def test_a_bar_goes_on_within_the_epoch(tmp_path: Path) -> None:
    batches = loader([torch.zeros(1)] * BATCHES)
    points = ResumePoints(tmp_path, every_n_steps=4)  # a checkpoint before the fifth batch
    with pytest.raises(RuntimeError, match="a fault"):
        trainer(max_epochs=2, callbacks=[points, Ends()]).fit(Idle(), batches)

    bar = Progress()
    looks = Looks(bar)
    callbacks = [ResumePoints(tmp_path, every_n_steps=100), bar, looks]
    resumed = trainer(max_epochs=2, callbacks=callbacks, enable_progress_bar=True)
    resumed.fit(Idle(), batches, ckpt_path=tmp_path / "last.ckpt")
    first = [("Epoch 0: ", 4, done, BATCHES) for done in range(5, BATCHES + 1)]
    second = [("Epoch 1: ", 0, done, BATCHES) for done in range(1, BATCHES + 1)]
    assert looks.seen == first + second
