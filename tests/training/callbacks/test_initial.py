"""Trainings that begin from weights which have a score already."""

from contextlib import suppress

import pytest
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint

from captioning.runs.checkpoints.checkpoint import read_checkpoint
from captioning.training.callbacks.initial import InitialScore
from captioning.training.callbacks.resume import CheckpointFiles, ResumePoints

from ..world import QUIET, data, examples, flat, module, noted, trainer

SPLITS = {"train": examples(2), "val": examples(2), "test": examples(2)}
BEFORE = 9.0
WORSE, BETTER = [3, 5, 4, 6], [3, 11, 4, 12]
pytestmark = QUIET


class Scored(Callback):
    def __init__(self, scores, fails_in):
        self.scores, self.fails_in = scores, fails_in

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if trainer.current_epoch == self.fails_in and number == 1:
            raise ArithmeticError

    def on_validation_epoch_end(self, trainer, module):
        score = BEFORE if trainer.sanity_checking else self.scores[trainer.current_epoch]
        module.log("val/given", float(score))


def trained(folder, scores, initial=True, fails_in=None, checkpoint=None):
    """The module, its checkpoint callback, and how often it was validated before the first step."""
    keep = ModelCheckpoint(
        folder,
        "best",
        "val/given",
        mode="max",
        save_on_train_epoch_end=False,
        enable_version_counter=False,
    )
    stop = EarlyStopping("val/given", mode="max", patience=2, check_on_train_epoch_end=False)
    begun, seen = noted(lambda *_: None, "on_sanity_check_start")
    callbacks = [ResumePoints(folder, 1), Scored(scores, fails_in), stop, begun, keep]
    run = trainer(
        max_epochs=len(scores),
        callbacks=[*callbacks, InitialScore()] if initial else callbacks,
        num_sanity_val_steps=-1 if initial else 0,
        plugins=[CheckpointFiles()],
        enable_checkpointing=True,
        default_root_dir=folder,
        precision="32-true",
    )
    found = module(splits=SPLITS)
    with suppress(ArithmeticError):
        run.fit(found, data(SPLITS, batch_size=1), ckpt_path=checkpoint)
    return found, run.checkpoint_callback, len(seen)


def best_of(folder):
    """The step and the model's weights of `best.ckpt`."""
    saved = read_checkpoint(folder / "best.ckpt")
    weights = [w.flatten() for name, w in saved["state_dict"].items() if name.startswith("model.")]
    return saved["global_step"], torch.cat(weights)


def test_the_weights_that_it_began_with_stay_where_none_are_better(tmp_path, caplog):
    """And early stopping does not count their score: it would end training after two epochs."""
    with caplog.at_level("INFO", "captioning"):
        found, keep, _ = trained(tmp_path, WORSE)
    step, weights = best_of(tmp_path)
    assert (step, float(keep.best_model_score)) == (0, BEFORE)
    states = module(splits=SPLITS).model.state_dict().values()
    assert torch.equal(weights, torch.cat([w.flatten() for w in states]))
    assert found.trainer.global_step == 2 * len(WORSE)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[-1] == "best given 6.00, init_from had 9.00, which best.ckpt keeps"


def test_better_ones_take_their_place_and_the_training_is_the_same_without_it(tmp_path, caplog):
    with caplog.at_level("INFO", "captioning"):
        found, keep, _ = trained(tmp_path / "with", BETTER)
    assert float(keep.best_model_score) == 12
    assert caplog.records[-1].getMessage() == "best given 12.00, init_from had 9.00"
    plain, _, _ = trained(tmp_path / "without", BETTER, initial=False)
    assert torch.equal(flat(found), flat(plain))
    (step, weights), (other_step, others) = (best_of(tmp_path / n) for n in ("with", "without"))
    assert step == other_step == 2 * len(BETTER)
    assert torch.equal(weights, others)


@pytest.mark.parametrize("scores", [WORSE, BETTER])
def test_what_is_resumed_knows_the_score_and_does_not_compute_it_again(tmp_path, scores, caplog):
    _, _, before = trained(tmp_path, scores, fails_in=2)
    with caplog.at_level("INFO", "captioning"):
        _, keep, again = trained(tmp_path, scores, checkpoint=tmp_path / "last.ckpt")
    assert (before, again) == (1, 0)
    assert float(keep.best_model_score) == max(BEFORE, *scores)
    assert f"best given {max(scores)}.00, init_from had 9.00" in caplog.records[-1].getMessage()
    assert best_of(tmp_path)[0] == (0 if scores is WORSE else 2 * len(scores))
