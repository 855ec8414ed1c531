"""The loss law: batches and accumulated batches change nothing but the time; for processes see test_ranks.py."""

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from torch import Tensor
from torch.nn.functional import cross_entropy

from captioning.data.batch import Batch
from captioning.runs.checkpoint_files import CheckpointFiles
from captioning.training.module import CaptioningModule
from captioning.training.objectives import CrossEntropy, Reinforce
from captioning.training.schedule import warmup_decay
from captioning.training.selection import load_best

from .world import QUIET, SYSTEMS, WORDS, batch, data, examples, flat, hard, loader, module, self_critical, trainer

LR = 0.5
pytestmark = QUIET


def gradient(model: torch.nn.Module, batches: list[Batch], smoothing: float = 0.0) -> Tensor:
    """Of the mean over all real words of `batches`, by torch's own cross-entropy over padded captions."""
    model = copy.deepcopy(model).double()
    logits, targets = [], []
    for given in batches:
        context = module().double().context(given.to(torch.device("cpu")))
        every = model.readout(model(context, given.sources).hidden)
        logits.append(every.flatten(0, 2))
        targets.append(given.tokens[..., 1:].flatten())
    mean = cross_entropy(torch.cat(logits), torch.cat(targets), ignore_index=0, label_smoothing=smoothing)
    mean.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def step(found: CaptioningModule, batches: list[Batch], **settings: Any) -> Tensor:
    """The change of the model's parameters by training on `batches`."""
    before = flat(found.model)
    trainer(**settings).fit(found, loader(batches))
    return flat(found.model) - before


class AfterEachStep(L.Callback):
    """What `look` sees of the trainer and the module after each step."""

    def __init__(self, look: Callable[[L.Trainer, Any], Any]) -> None:
        self.look, self.seen = look, []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        self.seen.append(self.look(trainer, pl_module))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_one_step_is_that_of_the_mean_over_words(smoothing: float) -> None:
    found = module(objective=CrossEntropy(smoothing))
    expected = -LR * gradient(found.model, [batch(0, 6)], smoothing)
    assert expected.norm() > 0.1
    torch.testing.assert_close(step(found, [batch(0, 6)]), expected, rtol=1e-9, atol=1e-12)


def learned_by_objective(found: CaptioningModule) -> Tensor:
    """The baseline of hard attention; the other objectives learn nothing."""
    return torch.cat([torch.zeros(0, dtype=torch.float64), *found.objective.state_dict().values()])


@pytest.mark.parametrize("system", SYSTEMS)
def test_accumulated_halves_are_the_whole(system: str) -> None:
    assert len(batch(0, 2).word_index) != len(batch(2, 6).word_index)
    once, twice = SYSTEMS[system](), SYSTEMS[system]()
    whole = step(once, [batch(0, 6)])
    halves = step(twice, [batch(0, 2), batch(2, 6)], accumulate_grad_batches=2)
    torch.testing.assert_close(halves, whole, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(learned_by_objective(twice), learned_by_objective(once), rtol=1e-12, atol=0)
    single = step(SYSTEMS[system](), [batch(0, 6)], precision="32-true")
    halved = step(SYSTEMS[system](), [batch(0, 2), batch(2, 6)], precision="32-true", accumulate_grad_batches=2)
    assert ((halved - single).norm() / single.norm()).item() < 4e-6  # advantages of both signs cancel


def test_objective_learns_once_per_step() -> None:
    """Two batches in one step move the baseline by a tenth, in two steps by a tenth of the rest again."""
    one, two = (hard(optimizer=partial(torch.optim.SGD, lr=0.0)) for _ in range(2))
    one.objective, two.objective = (Reinforce(sample_probability=1.0, decay=0.9) for _ in range(2))
    step(one, [batch(0, 2), batch(0, 2)], accumulate_grad_batches=2)
    step(two, [batch(0, 2), batch(0, 2)])
    assert one.objective.baseline.item() < -0.1
    assert two.objective.baseline.item() == pytest.approx(1.9 * one.objective.baseline.item(), rel=1e-9)


def test_baseline_is_logged() -> None:
    logged = AfterEachStep(lambda run, _: float(run.callback_metrics["train/baseline"]))
    held = AfterEachStep(lambda _, found: found.objective.baseline[0].item())
    step(hard(), [batch(0, 2), batch(2, 6)], callbacks=[logged, held])
    assert logged.seen == held.seen
    assert held.seen[0] != held.seen[1]


def test_last_incomplete_window_of_accumulation() -> None:
    """Three batches by twos: the third makes a step of its own, with its own number of words."""
    found = module()
    first = -LR * gradient(found.model, [batch(0, 2), batch(2, 3)])
    moved = module()
    moved.model.double()
    torch.nn.utils.vector_to_parameters(flat(found.model) + first, moved.model.parameters())
    second = -LR * gradient(moved.model, [batch(3, 6)])
    change = step(found, [batch(0, 2), batch(2, 3), batch(3, 6)], accumulate_grad_batches=2)
    torch.testing.assert_close(change, first + second, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("windows", [1, 2])
def test_clipping_comes_after_the_division(windows: int) -> None:
    found = module()
    batches = [batch(0, 2), batch(2, 6)]
    mean = gradient(found.model, batches)
    limit = mean.norm().item() / 3
    given = batches if windows == 2 else [batch(0, 6)]
    change = step(found, given, accumulate_grad_batches=windows, gradient_clip_val=limit)
    torch.testing.assert_close(change, -LR * mean / 3, rtol=1e-5, atol=1e-9)
    unclipped = step(module(), [batch(0, 6)], gradient_clip_val=mean.norm().item() * 1.01)
    torch.testing.assert_close(unclipped, -LR * mean, rtol=1e-9, atol=1e-12)


def test_clipping_by_value() -> None:
    found = module()
    mean = gradient(found.model, [batch(0, 6)])
    limit = mean.abs().max().item() / 2
    change = step(found, [batch(0, 6)], gradient_clip_val=limit, gradient_clip_algorithm="value")
    torch.testing.assert_close(change, -LR * mean.clamp(-limit, limit), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("optimizer", [partial(torch.optim.SGD, lr=LR), partial(torch.optim.SGD, lr=LR, fused=True)])
def test_bf16_mixed_takes_about_the_same_step_and_clips(optimizer: Any) -> None:
    mean = gradient(module().model, [batch(0, 6)])
    found = module(optimizer=optimizer)
    change = step(found, [batch(0, 6)], precision="bf16-mixed")
    assert {p.dtype for p in found.parameters()} == {torch.float32}
    assert ((change + LR * mean).norm() / (LR * mean).norm()).item() < 0.03
    limit = mean.norm().item() / 4
    clipped = step(module(optimizer=optimizer), [batch(0, 6)], precision="bf16-mixed", gradient_clip_val=limit)
    assert clipped.norm().item() == pytest.approx(LR * limit, rel=1e-3)


def test_logged_likelihood_is_per_word_and_not_smoothed() -> None:
    found = module(objective=CrossEntropy(0.4))
    losses = AfterEachStep(lambda run, _: float(run.callback_metrics["train/nll"]))
    given = batch(0, 6)
    context = found.context(given)
    logits = found.model.readout(found.model(context, given.sources).hidden).flatten(0, 2)
    expected = cross_entropy(logits, given.tokens[..., 1:].flatten(), ignore_index=0).item()
    trainer(callbacks=[losses], accumulate_grad_batches=3).fit(found, loader([given]))
    assert losses.seen == pytest.approx([expected], rel=1e-5)


SPLITS = {"train": examples(7), "val": examples(5), "test": examples(5)}


def test_averaged_weights_are_validated_kept_and_tested(tmp_path: Path) -> None:
    found = module(splits=SPLITS)
    weights = AfterEachStep(lambda _, found: flat(found.model))
    keep = ModelCheckpoint(tmp_path, "best", "val/nll", mode="min", save_last=True)
    averaging = EMAWeightAveraging(decay=0.5)
    callbacks = [weights, averaging, keep]
    files = CheckpointFiles()
    run = trainer(precision="32-true", enable_checkpointing=True, callbacks=callbacks, plugins=[files])
    initial = flat(found.model)
    source = data(SPLITS)
    run.fit(found, source)
    average = initial
    for count, seen in enumerate(weights.seen):
        average = seen if count == 0 else 0.5 * average + 0.5 * seen  # the first step's weights begin the average
    saved = files.load_checkpoint(tmp_path / "best.ckpt")
    fresh = module(splits=SPLITS)
    fresh.load_state_dict(saved["state_dict"])
    torch.testing.assert_close(flat(fresh.model), average, rtol=1e-5, atol=1e-6)
    assert (flat(fresh.model) - weights.seen[-1]).norm() > 1e-3
    fresh_scores = trainer(precision="32-true").validate(fresh, source, verbose=False)[0]
    assert fresh_scores["val/nll"] == pytest.approx(float(keep.best_model_score), rel=1e-5)
    load_best(found, run)
    run.test(found, source, verbose=False)
    torch.testing.assert_close(flat(found.model), average, rtol=1e-5, atol=1e-6)


def test_checkpoint_holds_what_builds_the_captioner_again(tmp_path: Path) -> None:
    found = module()
    found.backbone.scale.fill_(0.125)
    run = trainer(enable_checkpointing=True, callbacks=[ModelCheckpoint(tmp_path, "all")], precision="32-true")
    run.fit(found, loader([batch(0, 6)]))
    saved = torch.load(tmp_path / "all.ckpt", weights_only=True)
    assert saved["captioning"] == {"config": found.config, "words": WORDS}
    assert saved["state_dict"]["backbone.scale"].item() == 0.125
    again = module(model=None)
    again.load_state_dict(saved["state_dict"])
    assert torch.equal(flat(again), flat(found))
    assert not any("scores" in key or "nll" in key for key in saved["state_dict"])


def test_checkpoint_holds_the_baseline_and_training_goes_on_with_it(tmp_path: Path) -> None:
    batches = [batch(0, 2), batch(2, 6), batch(6, 9)]
    whole = hard()
    trainer(max_epochs=2).fit(whole, loader(batches))
    first = hard()
    run = trainer()
    run.fit(first, loader(batches))
    run.save_checkpoint(tmp_path / "half.ckpt")
    held = torch.load(tmp_path / "half.ckpt", weights_only=True)["state_dict"]
    objective = {name: value for name, value in held.items() if name.startswith("objective")}
    assert list(objective) == ["objective.baseline"]
    assert torch.equal(objective["objective.baseline"], first.objective.baseline)
    assert not torch.equal(first.objective.baseline, hard().objective.baseline)
    second = hard().double()  # weights are restored before Lightning makes them so
    trainer(max_epochs=2).fit(second, loader(batches), ckpt_path=tmp_path / "half.ckpt")
    torch.testing.assert_close(second.objective.baseline, whole.objective.baseline, rtol=1e-12, atol=0)
    torch.testing.assert_close(flat(second.model), flat(whole.model), rtol=1e-12, atol=1e-14)


def test_self_critical_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    """To the bit; the checkpoint holds the document frequencies, and not the model that it is held near."""
    batches = [batch(0, 2), batch(2, 6), batch(6, 9)]
    whole, first, second = self_critical(), self_critical(), self_critical()
    trainer(max_epochs=2).fit(whole, loader(batches))
    run = trainer()
    run.fit(first, loader(batches))
    run.save_checkpoint(tmp_path / "half.ckpt")
    held = torch.load(tmp_path / "half.ckpt", weights_only=True)["state_dict"]
    assert held["objective._extra_state"][0, 0] == 40  # images
    assert [name for name in held if name.startswith("objective")] == ["objective._extra_state"]
    trainer(max_epochs=2).fit(second.double(), loader(batches), ckpt_path=tmp_path / "half.ckpt")
    assert torch.equal(flat(second.model), flat(whole.model))
    assert not torch.equal(flat(second.model), flat(first.model))


def test_frozen_backbone_is_not_optimised() -> None:
    found = module(optimizer=partial(torch.optim.SGD, lr=LR, weight_decay=0.3))
    before = flat(found.backbone)
    step(found, [batch(0, 6)])
    assert torch.equal(flat(found.backbone), before)


def test_the_backbone_learns_at_its_own_rate_by_the_same_schedule() -> None:
    images = torch.randint(0, 256, (6, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    given = dataclasses.replace(batch(0, 6), inputs=images, pixels=True)
    changes: dict[float | None, tuple[Tensor, Tensor]] = {}
    for rate in (None, LR / 8):
        found = module(trainable=True, backbone_lr=rate, schedule=partial(warmup_decay, warmup_steps=4))
        before = flat(found.backbone)
        changes[rate] = step(found, [given]), flat(found.backbone) - before
    torch.testing.assert_close(changes[LR / 8][0], changes[None][0], rtol=1e-12, atol=0)
    torch.testing.assert_close(changes[LR / 8][1], changes[None][1] / 8, rtol=1e-8, atol=1e-14)
    assert changes[None][1].abs().max() > 1e-6


def test_schedule_counts_optimiser_steps() -> None:
    """Two epochs of 5 batches by twos are 6 steps; the fourth of them has the rate of progress 3/6."""

    class Rates(L.Callback):
        def __init__(self) -> None:
            self.seen: list[float] = []

        def on_before_optimizer_step(self, trainer: L.Trainer, *_: Any) -> None:
            self.seen.append(trainer.optimizers[0].param_groups[0]["lr"])

    rates = Rates()
    found = module(schedule=partial(warmup_decay, decay="linear"), optimizer=partial(torch.optim.SGD, lr=6.0))
    batches = [batch(i, i + 1) for i in range(5)]
    trainer(max_epochs=2, accumulate_grad_batches=2, callbacks=[rates]).fit(found, loader(batches))
    assert rates.seen == pytest.approx([6, 5, 4, 3, 2, 1])


def test_training_without_an_end_has_a_schedule() -> None:
    found = module(schedule=partial(warmup_decay, warmup_steps=2))
    trainer(max_epochs=-1, max_time={"seconds": 0}).fit(found, loader([batch(0, 1)]))
    trainer(max_epochs=-1, max_steps=2).fit(module(), loader([batch(0, 1)]))
