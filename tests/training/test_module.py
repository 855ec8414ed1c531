"""Batches and accumulated batches change nothing but the time (for processes see test_ranks.py);
what is resumed is the same to the bit, or refused; schedules by hand.
"""

import copy
import math
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from captioning.errors import CaptioningError
from captioning.metrics import Metric
from captioning.runs.checkpoints.checkpoint import read_checkpoint, with_digest
from captioning.runs.settings import FORMAT
from captioning.training.callbacks.resume import CheckpointFiles
from captioning.training.callbacks.statistics import GradientNorm
from captioning.training.fit import fit
from captioning.training.objectives import CrossEntropy
from captioning.training.schedule import warmup_decay
from captioning.training.selection import load_best

from .world import (
    QUIET,
    SYSTEMS,
    WORDS,
    batch,
    data,
    equal,
    examples,
    flat,
    hard,
    loader,
    module,
    normal,
    noted,
    self_critical,
    soft,
    trainer,
)

LR = 0.5
SPLITS = {"train": examples(7), "val": examples(5), "test": examples(5)}
THREE = [batch(0, 2), batch(2, 6), batch(6, 9)]
pytestmark = QUIET


def gradient(model, batches, smoothing=0.0):
    """Of the mean over all real words of `batches`, by torch's own cross-entropy over padded
    captions.
    """
    model = copy.deepcopy(model).double()
    logits, targets = [], []
    for given in batches:
        context = module().double().context(given)
        logits.append(model.readout(model(context, given.sources).hidden).flatten(0, 2))
        targets.append(given.tokens[..., 1:].flatten())
    cross_entropy(
        torch.cat(logits), torch.cat(targets), ignore_index=0, label_smoothing=smoothing
    ).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def likelihood(found, given, **more):
    """Per word, by torch's own cross-entropy."""
    hidden = found.model(found.context(given), given.sources, **more).hidden
    logits, targets = found.model.readout(hidden).flatten(0, 2), given.tokens[..., 1:].flatten()
    return cross_entropy(logits, targets, ignore_index=0).item()


def step(found, batches, **settings):
    """The change of the model's parameters by training on `batches`."""
    before = flat(found.model)
    trainer(**settings).fit(found, loader(batches))
    return flat(found.model) - before


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_one_step_is_that_of_the_mean_over_words(smoothing):
    """And what is logged is the likelihood per word, not smoothed."""
    found = module(objective=CrossEntropy(smoothing))
    losses, seen = noted(lambda run, _: float(run.callback_metrics["train/nll"]))
    given = batch(0, 6)
    logged = likelihood(found, given)
    expected = -LR * gradient(found.model, [given], smoothing)
    assert expected.norm() > 0.1
    change = step(found, [given], accumulate_grad_batches=3, callbacks=[losses])
    equal(change, expected)
    assert seen == pytest.approx([logged], rel=1e-5)


@pytest.mark.parametrize("system", SYSTEMS)
def test_accumulated_halves_are_the_whole(system):
    assert len(batch(0, 2).word_index) != len(batch(2, 6).word_index)
    once, twice = SYSTEMS[system](), SYSTEMS[system]()
    whole = step(once, [batch(0, 6)])
    halves = step(twice, [batch(0, 2), batch(2, 6)], accumulate_grad_batches=2)
    equal(halves, whole)
    # the baseline of hard attention, which learns once per step and is logged; the other objectives
    # learn nothing
    for name, value in once.objective.state_dict().items():
        equal(twice.objective.state_dict()[name], value)
    if system == "hard attention":
        baseline = once.objective.baseline
        assert not torch.equal(baseline, SYSTEMS[system]().objective.baseline)
        logged = once.trainer.callback_metrics["train/baseline"]
        assert logged == pytest.approx(baseline[0].item())


def test_last_incomplete_window_of_accumulation():
    """Three batches by twos: the third makes a step of its own, with its own number of words."""
    found, moved = module(), module()
    first = -LR * gradient(found.model, [batch(0, 2), batch(2, 3)])
    moved.model.double()
    torch.nn.utils.vector_to_parameters(flat(found.model) + first, moved.model.parameters())
    second = -LR * gradient(moved.model, [batch(3, 6)])
    change = step(found, [batch(0, 2), batch(2, 3), batch(3, 6)], accumulate_grad_batches=2)
    equal(change, first + second)


def test_clipping_comes_after_the_division():
    """By norm, also over two batches, and by value; the norm that is logged is that before it."""
    mean = gradient(module().model, [batch(0, 6)])
    norm, value = mean.norm().item(), mean.abs().max().item() / 2
    found, halves = module(), [batch(0, 2), batch(2, 6)]
    settings = {"accumulate_grad_batches": 2, "callbacks": [GradientNorm(modules=True)]}
    change = step(found, halves, gradient_clip_val=norm / 3, **settings)
    assert_close(change, -LR * mean / 3, rtol=1e-5, atol=1e-9)
    metrics = found.trainer.callback_metrics.items()
    logged = {name.partition("norm")[2]: float(v) for name, v in metrics if "gradient" in name}
    assert logged.pop("") == pytest.approx(norm, rel=1e-5)
    assert all(name.startswith(" model.") for name in logged)  # the backbone is frozen
    assert math.hypot(*logged.values()) == pytest.approx(norm, rel=1e-5)
    change = step(module(), [batch(0, 6)], gradient_clip_val=value, gradient_clip_algorithm="value")
    equal(change, -LR * mean.clamp(-value, value))


@pytest.mark.parametrize("fused", [False, True])
def test_bf16_mixed_takes_about_the_same_step_and_clips(fused):
    settings = {"optimizer": partial(torch.optim.SGD, lr=LR, fused=fused)}
    mean, found = gradient(module().model, [batch(0, 6)]), module(**settings)
    change = step(found, [batch(0, 6)], precision="bf16-mixed")
    assert {p.dtype for p in found.parameters()} == {torch.float32}
    assert ((change + LR * mean).norm() / (LR * mean).norm()).item() < 0.03
    limit = mean.norm().item() / 4
    clip = {"precision": "bf16-mixed", "gradient_clip_val": limit}
    clipped = step(module(**settings), [batch(0, 6)], **clip)
    assert clipped.norm().item() == pytest.approx(LR * limit, rel=1e-3)


def test_averaged_weights_are_validated_kept_and_tested(tmp_path):
    found, source = module(splits=SPLITS), data(SPLITS)
    callback, weights = noted(lambda _, found: flat(found.model))
    keep = ModelCheckpoint(tmp_path, "best", "val/nll", mode="min", save_last=True)
    callbacks = [callback, EMAWeightAveraging(decay=0.5), keep]
    settings = {"precision": "32-true", "enable_checkpointing": True}
    run = trainer(callbacks=callbacks, plugins=[CheckpointFiles()], **settings)
    run.fit(found, source)
    average = weights[0]  # the first step's weights begin the average
    for seen in weights[1:]:
        average = 0.5 * average + 0.5 * seen
    load_best(found, run)
    assert_close(flat(found.model), average, rtol=1e-5, atol=1e-6)
    assert (flat(found.model) - weights[-1]).norm() > 1e-3
    validated = trainer(precision="32-true").validate(found, source, verbose=False)[0]
    assert validated["val/nll"] == pytest.approx(float(keep.best_model_score), rel=1e-5)
    run.test(found, source, verbose=False)
    assert_close(flat(found.model), average, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("build", [module, hard])
def test_the_likelihood_of_the_test_is_that_of_all_real_words(build):
    """Over both batches; of hard attention that of its known paths."""
    found, run = build(splits=SPLITS), trainer()
    run.test(found, data(SPLITS, eval_batch_size=3), verbose=False)
    given = next(iter(data(SPLITS, eval_batch_size=5).test_dataloader()))
    more = {"sampled": torch.ones(5, dtype=torch.bool)} if build is hard else {}
    expected = likelihood(found.eval().double(), given, **more)
    end = " (bound)" if build is hard else ""
    logged = {name: float(x) for name, x in run.callback_metrics.items() if "BLEU" not in name}
    assert logged == pytest.approx(
        {f"test/nll{end}": expected, f"test/perplexity{end}": math.exp(expected)}, rel=1e-5
    )


class Failing(Metric):
    def compute(self, *_):
        raise ArithmeticError


def test_a_monitored_metric_that_fails_ends_the_training_and_others_do_not():
    """Else an earlier value of it would choose the checkpoint."""
    metrics = [Failing(), "BLEU"]
    found = module(splits=SPLITS, metrics=metrics)
    run = trainer()
    run.validate(found, data(SPLITS), verbose=False)
    assert "val/BLEU-4" in run.callback_metrics
    assert "val/Failing" not in run.callback_metrics
    monitored = module(splits=SPLITS, metrics=metrics, monitored={"val/Failing"})
    with pytest.raises(CaptioningError, match=r"val/Failing is monitored.*resume=true"):
        trainer().validate(monitored, data(SPLITS), verbose=False)


@pytest.mark.parametrize("build, state", [(hard, ["baseline"]), (self_critical, [])])
def test_a_checkpoint_holds_what_builds_and_trains_on_to_the_same(tmp_path, build, state):
    """To the bit: configuration, words, weights and baseline, without the initial model."""
    whole, first, second = build(), build(), build()
    for found in (whole, first, second):
        found.backbone.scale.fill_(0.125)
    trainer(max_epochs=2).fit(whole, loader(THREE))
    run = trainer()
    run.fit(first, loader(THREE))
    run.save_checkpoint(tmp_path / "half.ckpt")
    saved = torch.load(tmp_path / "half.ckpt", weights_only=True)
    assert saved["captioning"] == {"format": FORMAT, "config": first.stored.plain, "words": WORDS}
    assert saved["state_dict"]["backbone.scale"].item() == 0.125
    others = [key for key in saved["state_dict"] if not key.startswith(("model", "backbone"))]
    assert others == [f"objective.{name}" for name in state]
    # weights are restored before Lightning makes them so
    trainer(max_epochs=2).fit(second.double(), loader(THREE), ckpt_path=tmp_path / "half.ckpt")
    assert torch.equal(flat(second.model), flat(whole.model))
    assert not torch.equal(flat(second.model), flat(first.model))
    if state:
        assert torch.equal(second.objective.baseline, whole.objective.baseline)
        assert not torch.equal(second.objective.baseline, first.objective.baseline)


def test_backbones_learn_only_where_asked_and_at_their_own_rate_by_the_same_schedule():
    frozen = module(optimizer=partial(torch.optim.SGD, lr=LR, weight_decay=0.3))
    before = flat(frozen.backbone)
    step(frozen, [batch(0, 6)])
    assert torch.equal(flat(frozen.backbone), before)

    images = normal(6, 3, 6, 6, seed=0).mul(60).add(128).clamp(0, 255).byte()
    given = replace(batch(0, 6), inputs=images)
    changes = {}
    for rate in (None, LR / 8):
        schedule = partial(warmup_decay, warmup_steps=4)
        found = module(trainable=True, backbone_lr=rate, schedule=schedule)
        before = flat(found.backbone)
        changes[rate] = step(found, [given]), flat(found.backbone) - before
    equal(changes[LR / 8][0], changes[None][0])
    assert_close(changes[LR / 8][1], changes[None][1] / 8, rtol=1e-8, atol=1e-14)
    assert changes[None][1].abs().max() > 1e-6


def test_schedule_counts_optimiser_steps():
    """Two epochs of 5 batches by twos are 6 steps; the fourth of them has the rate of progress
    3/6.
    """
    hook = "on_before_optimizer_step"
    callback, rates = noted(lambda run, _: run.optimizers[0].param_groups[0]["lr"], hook)
    parts = {"schedule": partial(warmup_decay, decay="linear")}
    found = module(optimizer=partial(torch.optim.SGD, lr=6.0), **parts)
    batches = [batch(i, i + 1) for i in range(5)]
    run = trainer(max_epochs=2, accumulate_grad_batches=2, callbacks=[callback])
    run.fit(found, loader(batches))
    assert rates == pytest.approx([6, 5, 4, 3, 2, 1])
    # and training without an end has one too
    trainer(max_epochs=-1, max_time={"seconds": 0}).fit(module(), loader(batches[:1]))


FEW = {"train": examples(2), "val": examples(2), "test": examples(2)}
PLACES = [
    *(("optimizer_states",), ("optimizer_states", 0, "state"), ("lr_schedulers", 0)),
    *(("state_dict",), ("callbacks",), ("loops", "fit_loop"), ("CaptionData",), ("global_step",)),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "last.ckpt"
    first = trainer(plugins=[CheckpointFiles()])
    first.fit(soft(), data(FEW))
    first.save_checkpoint(path)
    return read_checkpoint(path)


@pytest.mark.filterwarnings("ignore:Be aware")
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_going_on_from_a_checkpoint_that_somebody_has_written(saved, tmp_path, place):
    for value in (None, {"a": 1}, torch.zeros(3)):
        node = changed = copy.deepcopy(saved)
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = value
        torch.save(with_digest(changed), tmp_path / "last.ckpt")
        with suppress(CaptioningError):
            run = trainer(max_epochs=2, plugins=[CheckpointFiles()])
            fit(run, soft(), data(FEW), tmp_path / "last.ckpt")


HALF = math.sqrt(0.5) / 2


@pytest.mark.parametrize(
    "total, decay, warmup, final, expected",
    [
        (6, "constant", 4, 0.1, [0.25, 0.5, 0.75, 1, 1, 1]),
        (4, "linear", 0, 0.2, [1, 0.8, 0.6, 0.4, 0.2, 0.2]),
        (6, "linear", 2, 0.0, [0.5, 1, 1, 0.75, 0.5, 0.25, 0]),
        (4, "cosine", 0, 0.2, [1, 0.6 + 0.8 * HALF, 0.6, 0.6 - 0.8 * HALF, 0.2, 0.2]),
        (3, "linear", 10, 0.0, [0.1, 0.2, 0.3]),
        (3, "inverse_sqrt", 2, 0.0, [0.5, 1, math.sqrt(2 / 3), math.sqrt(1 / 2)]),
    ],
)
def test_rates_by_hand(total, decay, warmup, final, expected):
    optimizer, rates = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), []
    schedule = warmup_decay(optimizer, total, warmup, decay, final)
    for _ in expected:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx(expected, abs=1e-12)
