"""The column of `metrics.csv` that chooses the best checkpoint and ends a training early."""

from pathlib import Path

import pytest
import torch
from json_files import read_json
from support import QUIET, SHAPES, composed, rows_of

from captioning import run
from captioning.data.example import Example, Reference
from captioning.runs.checkpoints.monitors import choose_loss_if_constant
from captioning.runs.settings import read_settings

pytestmark = [pytest.mark.usefixtures("elsewhere"), *QUIET]


def only_run(home):
    (folder,) = (home / "runs").iterdir()
    return folder


def column(folder, name):
    return [row[name] for row in rows_of(folder) if name in row]


def test_without_metrics_validation_decodes_nothing_and_chooses_by_the_loss(elsewhere, printed):
    said = printed(run.main, *SHAPES, "metrics.val=[]", "trainer.max_epochs=3")
    assert "chosen by the loss, val/nll" in said
    folder = only_run(elsewhere)
    losses = column(folder, "val/nll")
    assert len(losses) == 3
    names = {name for row in rows_of(folder) for name in row if name.startswith("val/")}
    assert names == {"val/nll"}  # no score, no wording, no statistics of attention
    best = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["epoch"] == losses.index(min(losses))
    assert read_settings(folder / "config.yaml")["callbacks"]["checkpoint"]["mode"] == "min"
    result = read_json(folder / "run.json")["result"]
    assert result["best"] == pytest.approx(min(losses), rel=1e-5)
    record = read_json(folder / "scores.json")
    assert record["scores"]["CIDEr"] >= 0  # the test decodes


def test_cider_that_cannot_move_chooses_nothing(elsewhere, printed, refused):
    """Of one image CIDEr is 0 for any captions: the loss chooses, training says why it ends early,
    the record too.
    """
    wanted = [*SHAPES, "data.reader.val=1", "data.reader.test=1", "metrics.test=[CIDEr]"]
    patience = ["trainer.max_epochs=9", "callbacks.early_stopping.patience=2"]
    wanted += [*patience, "optimizer.lr=30"]  # which diverges
    said = printed(run.main, *wanted)
    why = "CIDEr is 0 for any captions of 1 validation image with the same references"
    assert f"{why}: the best checkpoint is chosen by the loss, val/nll" in said
    folder = only_run(elsewhere)
    losses = column(folder, "val/nll")
    assert column(folder, "val/CIDEr") == []
    assert len(losses) == losses.index(min(losses)) + 1 + 2 < 9
    assert f"training ends early, after epoch {len(losses)}: " in said
    assert "val/nll did not improve" in said
    record = read_json(folder / "scores.json")
    assert record["scores"]["CIDEr"] is None
    assert record["provenance"]["monitor"] == "val/nll"
    assert any(line.split() == ["CIDEr", "-"] for line in said.splitlines())


def test_neither_does_it_choose_a_beam_width():
    config = composed("decoding.beam_widths=[1,2]")
    alone = Example(1, Path("1.jpg"), (Reference("a dog", ("a", "dog")),))
    choose_loss_if_constant(config, [alone])
    chosen = config.callbacks.checkpoint
    assert (chosen.monitor, chosen.mode) == ("val/nll", "min")
    assert config.decoding.beam_widths is None  # it would have nothing to compare
