"""The wording that callbacks log is that of all images once."""

import math
from pathlib import Path

import pytest
from torch import Tensor

from captioning.training.callbacks.caption_wording import LogWording

from ..tested import Pointer, run_test, spotted
from ..world import QUIET, module, trainer

pytestmark = QUIET
SAID = {
    "bad_endings": 0,
    "repeated": 0,
    "length": 3,
    "distinct-1": 20,
    "distinct-2": 20,
    "vocabulary used": 3,
    "novel": 0,
    "unseen pairs": 0,
    "ended": 100,
    "first word entropy": math.log(11),  # teacher forcing finds the pointer's seven words and four tokens all alike
    "word entropy": math.log(11),
}


def logged(metrics: dict[str, Tensor], split: str) -> dict[str, float]:
    return {name: float(metrics[f"{split}/{name}"]) for name in SAID}


def test_of_the_test(tmp_path: Path) -> None:
    """Five images have the same three words."""
    run = run_test(tmp_path, [LogWording()])
    assert logged(run.callback_metrics, "test") == pytest.approx(SAID)


def test_every_validation_begins_afresh_and_sees_captions_that_were_cut(tmp_path: Path) -> None:
    splits, images = spotted(tmp_path)
    found = module(Pointer(), splits=splits)
    run = trainer(precision="32-true", callbacks=[LogWording()])
    run.validate(found, images, verbose=False)
    run.validate(found, images, verbose=False)
    assert logged(run.callback_metrics, "val") == pytest.approx(SAID)
    search = found.search
    found.search = lambda model, context: search(model, context, max_length=2)
    run.validate(found, images, verbose=False)
    cut = SAID | {"length": 2, "ended": 0, "novel": 100, "vocabulary used": 2}
    assert logged(run.callback_metrics, "val") == pytest.approx(cut)
