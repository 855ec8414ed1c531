"""Statistics of known attention: one of nine cells has weight e^10, each of the others 1."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.protocol import Step
from captioning.training.callbacks.attention_statistics import LogAttentionStatistics

from ..tested import Pointer, State, run_test, spotted
from ..world import DIM, GRID, QUIET, module, trainer

pytestmark = QUIET


class Sharp(Pointer):
    """Looks at one cell with weight e^sharpness."""

    sharpness = 10.0

    def _attention(self, context: ContextSet) -> Tensor:
        return (self.sharpness * context.vectors[..., 0]).softmax(dim=-1)


class Blind(Pointer):
    """Says the same without attention."""

    def step(self, tokens: Tensor, state: State) -> Step:
        return replace(super().step(tokens, state), attention=None)


def entropy(sharpness: float) -> float:
    total = math.exp(sharpness) + 8
    peak = math.exp(sharpness) / total
    return -peak * math.log(peak) + 8 / total * math.log(total)


def expected(split: str, sharpness: float, coverage: float) -> Any:
    return pytest.approx(
        {
            f"{split}/attention entropy": entropy(sharpness),
            f"{split}/attention entropy variance": 0,
            f"{split}/attention movement": 0,
            f"{split}/attention coverage": coverage,
        },
        rel=1e-4,  # single precision
        abs=1e-9,
    )


def attention(metrics: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if "attention" in name}


def test_statistics_of_the_test(tmp_path: Path) -> None:
    run = run_test(tmp_path, [LogAttentionStatistics()])
    assert attention(run.callback_metrics) == expected("test", 10, 100 / 9)


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


class Epochs(L.Callback):
    """Changes how sharply the model looks before each epoch; keeps what was logged by its validation."""

    def __init__(self, sharpness: list[float]) -> None:
        self.sharpness, self.seen = sharpness, []

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        pl_module.model.sharpness = self.sharpness[trainer.current_epoch]

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.seen.append(attention(trainer.callback_metrics))


def test_every_validation_begins_afresh(tmp_path: Path) -> None:
    """The validation before training, of a part of the images, is in none of them either."""
    splits, images = spotted(tmp_path)
    epochs = Epochs([2.0, 0.0, 5.0])
    run = trainer(
        precision="32-true", max_epochs=3, num_sanity_val_steps=1, callbacks=[LogAttentionStatistics(), epochs]
    )
    run.fit(module(Sharp(), splits=splits), images)
    assert epochs.seen == [expected("val", 2, 100 / 9), expected("val", 0, 100), expected("val", 5, 100 / 9)]


def test_validation_and_test_of_one_callback_do_not_mix(tmp_path: Path) -> None:
    splits, images = spotted(tmp_path)
    found = module(Sharp(), splits=splits)
    run = trainer(precision="32-true", callbacks=[LogAttentionStatistics()])
    run.validate(found, images, verbose=False)
    assert attention(run.callback_metrics) == expected("val", 10, 100 / 9)
    found.model.sharpness = 1.0
    run.test(found, images, verbose=False)
    assert attention(run.callback_metrics) == expected("test", 1, 100 / 9)


def test_models_without_attention_have_no_statistics(tmp_path: Path) -> None:
    splits, images = spotted(tmp_path)
    run = trainer(precision="32-true", callbacks=[LogAttentionStatistics()])
    found = module(Blind(), splits=splits)
    run.fit(found, images)
    assert "val/BLEU-1" in run.callback_metrics
    assert attention(run.callback_metrics) == {}
    run.test(found, images, verbose=False)
    assert "test/BLEU-1" in run.callback_metrics
    assert attention(run.callback_metrics) == {}
