"""Statistics of known captions and attention: one of nine cells has weight e^10, each of the others 1."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.protocol import Step
from captioning.training.callbacks.statistics import LogAttentionStatistics, LogWording, Pointing

from ..conftest import Outcome
from ..tested import Pointer, State, photographs, run_test, spotted
from ..world import DIM, GRID, QUIET, module, noted, trainer

pytestmark = QUIET

WORDING = {
    **{"bad_endings": 0, "repeated": 0, "length": 3, "distinct-1": 20, "distinct-2": 20, "vocabulary used": 3},
    **{"novel": 0, "unseen pairs": 0, "ended": 100},
    # teacher forcing finds the pointer's seven words and four tokens all alike
    **{"first word entropy": math.log(11), "word entropy": math.log(11)},
}


class Blind(Pointer):
    """Says the same without attention."""

    def step(self, tokens: Tensor, state: State) -> Step:
        return replace(super().step(tokens, state), attention=None)


class Masked(Pointer):
    """Looks evenly at what is there."""

    def _attention(self, context: ContextSet) -> Tensor:
        assert context.mask is not None
        return context.mask / context.mask.sum(dim=1, keepdim=True)


class Some:
    """Context vectors of which image i has the first i + 2."""

    pixels = False

    def rows(self, indices: list[int]) -> Tensor:
        features = torch.ones(len(indices), GRID * GRID, DIM)
        for row, i in enumerate(indices):
            features[row, i + 2 :] = math.nan
        return features


def expected(split: str, sharpness: float, coverage: float) -> Any:
    total = math.exp(sharpness) + 8
    peak = math.exp(sharpness) / total
    entropy = -peak * math.log(peak) + 8 / total * math.log(total)
    values = {"entropy": entropy, "entropy variance": 0, "movement": 0, "coverage": coverage}
    named = {f"{split}/attention {name}": value for name, value in values.items()}
    return pytest.approx(named, rel=1e-4, abs=1e-9)  # single precision


def attention(metrics: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if "attention" in name}


def wording(metrics: dict[str, Tensor], split: str) -> dict[str, float]:
    return {name: float(metrics[f"{split}/{name}"]) for name in WORDING}


def test_of_the_test(tested: Outcome) -> None:
    """Five images in two batches have the same three words; each first caption names the object in the bright cell.

    Of the photographs the network sees the middle, and boxes are of the whole. In place of the bright cells 4 0 8 2 4
    the shuffled images have 0 8 2 4 4, so that of the first captions the last hits. Second captions name the object in
    cell 0, bright in one image, and in one of the shuffled ones.
    """
    assert attention(tested.metrics) == expected("test", 10, 100 / 9)
    assert wording(tested.metrics, "test") == pytest.approx(WORDING)
    assert float(tested.metrics["test/pointing"]) == pytest.approx(100 * 6 / 10)
    assert float(tested.metrics["test/pointing (images shuffled)"]) == pytest.approx(100 * 2 / 10)


def test_only_what_an_image_has_is_counted(tmp_path: Path) -> None:
    splits, images = spotted(tmp_path)
    for dataset in images.datasets.values():
        dataset.inputs = Some()
    found = module(Masked(), splits=splits)
    found.backbone.partial = True
    run = trainer(precision="32-true", callbacks=[LogAttentionStatistics()])
    run.test(found, images, verbose=False)
    metrics = attention(run.callback_metrics)
    assert metrics["test/attention coverage"] == pytest.approx(100)
    assert metrics["test/attention entropy"] == pytest.approx(math.log(2 * 3 * 4 * 5 * 6) / 5)


def test_every_validation_begins_afresh(tmp_path: Path) -> None:
    """The validation before training, of a part of the images, is in none of them; the test is of its own."""
    splits, images = spotted(tmp_path)
    found = module(Pointer(), splits=splits)
    search = found.search

    def change(epoch: int) -> None:
        found.model.sharpness = (2.0, 0.0)[epoch]
        if epoch == 1:
            found.search = partial(search, max_length=2)

    first, _ = noted(lambda run, _: change(run.current_epoch), "on_train_epoch_start")
    last, seen = noted(lambda run, _: dict(run.callback_metrics), "on_train_epoch_end")
    callbacks = [first, LogAttentionStatistics(), LogWording(), last]
    run = trainer(precision="32-true", max_epochs=2, num_sanity_val_steps=1, callbacks=callbacks)
    run.fit(found, images)
    assert list(map(attention, seen)) == [expected("val", 2, 100 / 9), expected("val", 0, 100)]
    cut = WORDING | {"length": 2, "ended": 0, "novel": 100, "vocabulary used": 2}
    assert [wording(each, "val") for each in seen] == [pytest.approx(each) for each in (WORDING, cut)]
    found.model.sharpness = 1.0
    run.test(found, images, verbose=False)
    assert attention(run.callback_metrics) == expected("test", 1, 100 / 9)


def test_nothing_is_logged_of_what_is_not_there(tmp_path: Path) -> None:
    """A model without attention, features without a place, and data without boxes."""
    splits, images = spotted(tmp_path)
    found = module(Blind(), splits=splits)
    found.backbone.located = False
    run = trainer(precision="32-true", callbacks=[LogAttentionStatistics(), Pointing()])
    run.test(found, images, verbose=False)
    assert "test/BLEU-1" in run.callback_metrics
    assert attention(run.callback_metrics) == {}
    examples = [replace(e, references=tuple(replace(r, nouns=()) for r in e.references)) for e in photographs(tmp_path)]
    for metrics in (run.callback_metrics, run_test(tmp_path, [Pointing()], examples).callback_metrics):
        assert not any("pointing" in name for name in metrics)
