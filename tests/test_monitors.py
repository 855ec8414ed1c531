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


def test_without_metrics_validation_decodes_nothing_and_chooses_by_the_loss(
    elsewhere: Path, printed: Command
) -> None:
    printed_lines = printed(
        run.main, *SHAPES, "metrics.val=[]", "trainer.max_epochs=3"
    ).splitlines()
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
    assert json.loads((folder / "run.json").read_text())["result"]["best"] == pytest.approx(
        min(losses), rel=1e-5
    )
    assert (
        json.loads((folder / "scores.json").read_text())["scores"]["CIDEr"] >= 0
    )  # the test decodes


def test_cider_that_cannot_move_chooses_nothing(
    elsewhere: Path, printed: Command, refused: Command
) -> None:
    """Of one image CIDEr is 0 for any captions: the loss chooses, training says why it ends early,
    the record too.
    """
    patient = [
        "trainer.max_epochs=9",
        "callbacks.early_stopping.patience=2",
        "optimizer.lr=30",
    ]  # which diverges
    wanted = [*SHAPES, *patient, "data.reader.val=1", "data.reader.test=1", "metrics.test=[CIDEr]"]
    said = printed(run.main, *wanted)
    why = "CIDEr is 0 for any captions of 1 validation image with the same references"
    assert f"{why}: the best checkpoint is chosen by the loss, val/nll" in said
    folder = only_run(elsewhere)
    losses = column(folder, "val/nll")
    assert column(folder, "val/CIDEr") == []
    assert len(losses) == losses.index(min(losses)) + 1 + 2 < 9
    assert f"training ends early, after epoch {len(losses)}: " in said
    assert "val/nll did not improve" in said
    assert torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)[
        "epoch"
    ] == losses.index(min(losses))
    record = json.loads((folder / "scores.json").read_text())
    assert record["scores"]["CIDEr"] is None
    assert record["provenance"]["monitor"] == "val/nll"
    assert any(line.split() == ["CIDEr", "-"] for line in said.splitlines())
    assert f"this run is finished: {folder.relative_to(elsewhere)}" in printed(
        run.main, *wanted, "resume=true"
    )
    printed(run.main, *wanted, "decoding.beam_widths=[1,2]", "name=selected")
    (selected,) = Path("runs").glob("selected-*/config.yaml")
    assert "beam_widths: null" in selected.read_text()
