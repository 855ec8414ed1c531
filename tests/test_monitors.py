"""The column of `metrics.csv` that chooses the best checkpoint and ends a training early."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support import QUIET, SHAPES

from captioning import run
from captioning.runs.settings import read_settings

pytestmark = [pytest.mark.usefixtures("elsewhere"), *QUIET]
Command = Callable[..., str]


def only_run(home: Path) -> Path:
    (folder,) = (home / "runs").iterdir()
    return folder


def column(folder: Path, name: str) -> list[float]:
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [float(row[name]) for row in csv.DictReader(file) if row.get(name)]


def test_without_metrics_validation_decodes_nothing_and_chooses_by_the_loss(elsewhere: Path, printed: Command) -> None:
    printed_lines = printed(run.main, *SHAPES, "metrics.val=[]", "trainer.max_epochs=3").splitlines()
    assert any("chosen by the loss, val/nll" in line for line in printed_lines)
    folder = only_run(elsewhere)
    losses = column(folder, "val/nll")
    assert len(losses) == 3
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        names = [name for name in file.readline().strip().split(",") if name.startswith("val/")]
    assert names == ["val/nll"]  # no score, no wording, no statistics of attention
    best = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["epoch"] == losses.index(min(losses))
    assert read_settings(folder / "config.yaml")["callbacks"]["checkpoint"]["mode"] == "min"
    assert json.loads((folder / "run.json").read_text())["result"]["best"] == pytest.approx(min(losses), rel=1e-5)
    assert json.loads((folder / "scores.json").read_text())["scores"]["CIDEr"] >= 0  # the test decodes
