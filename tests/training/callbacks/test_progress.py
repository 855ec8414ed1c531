import logging
import re
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from support import Terminal
from torch import Tensor

from captioning.training.callbacks import progress
from captioning.training.callbacks.progress import Progress
from captioning.training.callbacks.resume import ResumePoints

from ..world import QUIET, Idle, loader, trainer

pytestmark = QUIET

BATCHES = [torch.zeros(1)] * 10
SCORES = [12.34, 45.67, 23.41, 45.67]


class Scored(Idle):
    """Logs as the captioning module does; two captions for each batch of validation."""

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        self.log("train/nll", 2.5)
        return super().training_step(batch, index)

    def validation_step(self, batch: Tensor, index: int) -> list[str]:
        return ["a", "b"]

    def on_validation_epoch_end(self) -> None:
        self.log_dict({"val/BLEU-4": 9.0, "val/CIDEr": SCORES[self.current_epoch], "val/other": 8.0})

    test_step = validation_step


class Ends(L.Callback):
    """Training with a fault, before the seventh batch of the second epoch."""

    def on_train_batch_start(self, trainer: L.Trainer, module: L.LightningModule, batch: Tensor, index: int) -> None:
        if trainer.current_epoch == 1 and index == 6:
            raise RuntimeError("a fault")


def train(folder: Path, bar: Progress, *callbacks: L.Callback, **settings: Any) -> L.Trainer:
    best = ModelCheckpoint(folder, monitor="val/CIDEr", mode="max", filename="best", enable_version_counter=False)
    point = settings.pop("ckpt_path", None)
    found = trainer(
        **{"max_epochs": 3, "enable_progress_bar": True, "enable_checkpointing": True, **settings},
        callbacks=[*callbacks, bar, best],
    )
    found.fit(Scored(), loader(BATCHES), loader(BATCHES[:2]), ckpt_path=point)
    return found


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said, without what depends on time."""
    said = [record.getMessage() for record in caplog.records if record.name.startswith("captioning")]
    caplog.clear()
    return [re.sub(r", [^,]* left$", "", line) for line in said]


def test_a_log_file_has_a_line_for_each_validation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    ended = train(tmp_path, Progress(), accumulate_grad_batches=2)
    said = lines(caplog)
    assert said == [
        "training: 3 epochs of 5 steps",
        "epoch 1/3, step 5/15, loss 2.500, BLEU-4 9.0, CIDEr 12.3, best CIDEr 12.3",
        "epoch 2/3, step 10/15, loss 2.500, BLEU-4 9.0, CIDEr 45.7, best CIDEr 45.7",
        "epoch 3/3, step 15/15, loss 2.500, BLEU-4 9.0, CIDEr 23.4, best CIDEr 45.7",
    ]
    ended.test(ended.lightning_module, loader(BATCHES[:2]), verbose=False)
    assert lines(caplog) == ["test: scoring 4 captions ..."]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_and_lines_in_between(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    train(tmp_path, Progress(every_seconds=0), max_epochs=1)
    said = lines(caplog)
    assert said[1:11] == [f"epoch 1/1, step {step}/10, loss 2.500" for step in range(1, 11)]
    assert said[11:13] == [f"epoch 1/1, validation: batch {batch} of 2" for batch in (1, 2)]


@pytest.mark.parametrize("width", [100, 40])
def test_a_terminal_has_one_bar(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REDRAWN", 0)
    with Terminal(width, monkeypatch) as terminal:
        train(tmp_path, Progress(), max_epochs=4)
    frames = terminal.frames()
    assert all(len(frame) <= width for frame in frames)
    assert [frame[: len("epoch 2/4, scoring 4")] for frame in frames].count("epoch 2/4, validation"[:20]) == 3
    if width == 100:
        table = [frame.split() for frame in frames if " |" not in frame and ":" not in frame]
        assert table == [
            ["epoch", "step", "loss", "BLEU-4", "CIDEr"],
            ["1", "10", "2.500", "9.0", "12.3", "*"],
            ["2", "20", "2.500", "9.0", "45.7", "*"],
            ["3", "30", "2.500", "9.0", "23.4"],
            ["4", "40", "2.500", "9.0", "45.7"],  # of equals the first is kept
        ]
        texts = [
            re.sub(r", \d+ s left", "", frame.partition(" |")[0]) for frame in frames if frame.split() not in table
        ]
        assert "epoch 2/4, validation: scoring 4 captions ..." in texts
        assert re.fullmatch(r"epoch 4/4, [\d.e+]+ steps/s, lr 1.0e-01, loss 2.500", texts[-1])
        assert frames[-1].endswith("█|")
        assert sorted(texts, key=lambda text: text[:9]) == texts  # epochs one after the other


def test_it_goes_on_within_the_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    points = ResumePoints(tmp_path, every_n_steps=4)
    with pytest.raises(RuntimeError, match="a fault"):
        train(tmp_path, Progress(), points, Ends())
    caplog.clear()
    train(tmp_path, Progress(every_seconds=0), ResumePoints(tmp_path, 100), ckpt_path=tmp_path / "last.ckpt")
    said = lines(caplog)
    assert said[0].startswith("training: 3 epochs of 10 steps, of which 1")
    done = int(said[0].split()[-3])
    assert said[1] == f"epoch 2/3, step {done + 1}/30, loss 2.500, best CIDEr 12.3"
    assert "epoch 2/3, step 20/30, loss 2.500, BLEU-4 9.0, CIDEr 45.7, best CIDEr 45.7" in said


def test_of_several_processes_the_first_speaks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bar = Progress(every_seconds=0)
    bar.disable()  # as Lightning does on the others
    train(tmp_path, bar, max_epochs=1)
    assert lines(caplog) == []
