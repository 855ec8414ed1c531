"""Schedules that wait for a plateau of the score, and those of PyTorch and of the user."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from refusals import refuses
from torch.optim.lr_scheduler import LRScheduler

from captioning.config.registry import check_part
from captioning.training.callbacks.progress import Progress
from captioning.training.callbacks.resume import CheckpointFiles, ResumePoints
from captioning.training.schedule import build_schedule

from .world import QUIET, data, examples, module, noted, trainer

SPLITS = {"train": examples(2), "val": examples(2), "test": examples(2)}
SCORES = [3, 5, 5, 4, 6, 6, 6, 6, 5, 7, 2, 2]
RATES = [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125]
"""Of each epoch: halved where two validations have not improved."""
pytestmark = QUIET


class Scored(Callback):
    """Logs the given score in each validation; fails in the last batch of an epoch."""

    def __init__(self, scores, fails_in=None):
        self.scores, self.fails_in = scores, fails_in

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if trainer.current_epoch == self.fails_in and number == 1:
            raise ArithmeticError

    def on_validation_epoch_end(self, trainer, module):
        module.log("val/given", float(self.scores[trainer.current_epoch]))


def part(target, **settings):
    node = {"_target_": target, "_partial_": True, **settings}
    return check_part("schedule", Callable[..., LRScheduler], node, None)


def plateau(monitored="max", **settings):
    target = "torch.optim.lr_scheduler.ReduceLROnPlateau"
    own = part(target, factor=0.5, patience=1, threshold=0.0, **settings)
    return partial(build_schedule, own, monitored)


def fitted(folder, checkpoint=None, fails_in=None):
    """The rate of each epoch, of two batches each."""
    rate = lambda run, _: run.optimizers[0].param_groups[0]["lr"]  # noqa: E731
    rates, seen = noted(rate, "on_validation_start")
    keep = ModelCheckpoint(folder, "best", "val/given", mode="max", save_on_train_epoch_end=False)
    callbacks = [ResumePoints(folder, 1), Scored(SCORES, fails_in), rates, keep]
    run = trainer(
        max_epochs=len(SCORES),
        callbacks=callbacks,
        plugins=[CheckpointFiles()],
        enable_checkpointing=True,
        default_root_dir=folder,
    )
    optimizer = partial(torch.optim.SGD, lr=1.0)
    found = module(optimizer=optimizer, schedule=plateau(), splits=SPLITS)
    with suppress(ArithmeticError):
        run.fit(found, data(SPLITS, batch_size=1), ckpt_path=checkpoint)
    return seen


def test_the_rate_shrinks_after_so_many_validations_without_improvement(tmp_path):
    assert fitted(tmp_path) == RATES


def test_what_is_resumed_waits_on(tmp_path):
    """Between the first and the second of two validations that lower the rate together."""
    first, last = fitted(tmp_path, fails_in=3), tmp_path / "last.ckpt"
    assert torch.load(last)["lr_schedulers"][0]["num_bad_epochs"] == 1
    assert first + fitted(tmp_path, last) == RATES


def test_the_mode_is_that_of_the_monitored_score_unless_it_is_set():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    assert plateau("max")(optimizer, 9).mode == "max"
    assert plateau("min")(optimizer, 9).mode == "min"
    assert plateau("max", mode="min")(optimizer, 9).mode == "min"


def test_schedules_of_pytorch_count_steps_and_are_told_the_total_if_they_ask():
    def rates(target, **settings):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.5)
        own = part(f"torch.optim.lr_scheduler.{target}", **settings)
        built, seen = build_schedule(own, "max", optimizer, 4), []
        for _ in range(4):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            built.step()
        return seen

    assert rates("StepLR", step_size=2, gamma=0.5) == [1, 1, 0.5, 0.5]
    cycle = rates("OneCycleLR", max_lr=8.0, pct_start=0.5, anneal_strategy="linear")
    assert cycle[1] == pytest.approx(8)  # of the steps 0 to 3: the middle is the second
    with refuses(r"schedule: .*step_size"):
        rates("StepLR")


def test_early_stopping_does_not_decide_before_the_least_number_of_epochs(tmp_path, caplog):
    """It would have stopped after epoch 4; from then on the score improves. The line is true."""
    scores = [5, 4, 4, 4, 6, 7, 8, 9, 9, 9, 9, 9]
    for least, ended in ((None, 4), (6, 11), (12, 12)):
        stop = EarlyStopping("val/given", mode="max", patience=3, check_on_train_epoch_end=False)
        epochs, seen = noted(lambda run, _: run.current_epoch, "on_train_epoch_end")
        keep = ModelCheckpoint(tmp_path, monitor="val/given", mode="max")
        progress = Progress(refresh_rate=0, every_seconds=0)
        run = trainer(
            max_epochs=12,
            min_epochs=least,
            callbacks=[Scored(scores), stop, epochs, keep, progress],
            limit_train_batches=1,
            enable_checkpointing=True,
            enable_progress_bar=True,
        )
        caplog.clear()
        with caplog.at_level("INFO", "captioning"):
            run.fit(module(splits=SPLITS), data(SPLITS))
        assert len(seen) == ended, least
        last = caplog.records[-1].getMessage()
        assert last.startswith(f"training ends early, after epoch {ended}: ") == (ended < 12)
