from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn

from captioning.training.progress import Progress
from captioning.training.resume import ResumePoints

from .world import QUIET, loader, trainer

pytestmark = QUIET

BATCHES = 10


class Nothing(L.LightningModule):
    """Training of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        return self.weight.sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Fault(Exception):
    """Ends a training."""


class Ends(L.Callback):
    """Training with a fault, before the seventh batch."""

    def on_train_batch_start(self, trainer: L.Trainer, module: L.LightningModule, batch: Tensor, index: int) -> None:
        if index == 6:
            raise Fault


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
    with pytest.raises(Fault):
        trainer(max_epochs=2, callbacks=[points, Ends()]).fit(Nothing(), batches)

    bar = Progress()
    looks = Looks(bar)
    callbacks = [ResumePoints(tmp_path, every_n_steps=100), bar, looks]
    resumed = trainer(max_epochs=2, callbacks=callbacks, enable_progress_bar=True)
    resumed.fit(Nothing(), batches, ckpt_path=tmp_path / "last.ckpt")
    first = [("Epoch 0: ", 4, done, BATCHES) for done in range(5, BATCHES + 1)]
    second = [("Epoch 1: ", 0, done, BATCHES) for done in range(1, BATCHES + 1)]
    assert looks.seen == first + second
