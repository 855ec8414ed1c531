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
VALIDATIONS = [
    f"epoch {i}/4, step {i}0/40, loss 2.500, BLEU-4 9.0, CIDEr {cider}, best CIDEr {best}"
    for i, (cider, best) in enumerate([(12.3, 12.3), (45.7, 45.7), (23.4, 45.7), (45.7, 45.7)], start=1)
]


class Scored(Idle):
    """Logs as the captioning module does; two captions for each batch of validation; may end with a fault."""

    fault: int | None = None

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        if self.global_step == self.fault:
            raise RuntimeError("a fault")
        self.log("train/nll", 2.5)
        return super().training_step(batch, index)

    def validation_step(self, batch: Tensor, index: int) -> list[str]:
        return ["a", "b"]

    def on_validation_epoch_end(self) -> None:
        self.log_dict({"val/BLEU-4": 9.0, "val/CIDEr": SCORES[self.current_epoch], "val/other": 8.0})

    test_step = validation_step


def train(
    folder: Path, *callbacks: L.Callback, point: Path | None = None, fault: int | None = None, **more: Any
) -> L.Trainer:
    best = ModelCheckpoint(folder, monitor="val/CIDEr", mode="max", filename="best", enable_version_counter=False)
    settings = {"max_epochs": 4, "enable_progress_bar": True, "enable_checkpointing": True, **more}
    found, module = trainer(**settings, callbacks=[*callbacks, best]), Scored()
    module.fault = fault
    found.fit(module, loader(BATCHES), loader(BATCHES[:2]), ckpt_path=point)
    return found


def without_time(text: str) -> str:
    return re.sub(r", \d+ s left", "", text)


def test_lines_of_a_log_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """For each validation, and in between, on the first of several processes, from the step where training goes on."""
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        said = [record.getMessage() for record in caplog.records if record.name.startswith("captioning")]
        caplog.clear()
        return list(map(without_time, said))

    ended = train(tmp_path, Progress())
    assert lines() == ["training: 4 epochs of 10 steps", *VALIDATIONS]
    ended.test(ended.lightning_module, loader(BATCHES[:2]), verbose=False)
    assert lines() == ["test: scoring 4 captions ..."]

    train(tmp_path, Progress(every_seconds=0), max_epochs=1, accumulate_grad_batches=2)
    assert lines() == [
        "training: 1 epoch of 5 steps",
        *(f"epoch 1/1, step {batch // 2}/5, loss 2.500, lr 1.0e-01" for batch in range(1, 11)),
        *(f"epoch 1/1, validation: batch {batch} of 2" for batch in (1, 2)),
        "epoch 1/1, step 5/5, loss 2.500, BLEU-4 9.0, CIDEr 12.3, best CIDEr 12.3",
    ]
    silent = Progress(every_seconds=0)
    silent.disable()  # as Lightning does on the others
    train(tmp_path, silent, max_epochs=1)
    assert lines() == []

    with pytest.raises(RuntimeError, match="a fault"):
        train(tmp_path, Progress(), ResumePoints(tmp_path, every_n_steps=4), fault=16)
    lines()
    train(tmp_path, Progress(every_seconds=0), ResumePoints(tmp_path, 100), point=tmp_path / "last.ckpt")
    said = lines()
    assert re.match(r"training: 4 epochs of 10 steps, of which 1\d are done", said[0])
    done = int(said[0].split()[-3])
    assert said[1] == f"epoch 2/4, step {done + 1}/40, loss 2.500, best CIDEr 12.3, lr 1.0e-01"
    assert VALIDATIONS[1] in said
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize("width", [120, 40])
def test_a_terminal_has_one_bar(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REDRAWN", 0)
    with Terminal(width, monkeypatch) as terminal:
        train(tmp_path, Progress())
    frames = list(map(without_time, terminal.frames()))
    assert [frame for frame in frames if "BLEU-4" in frame] == VALIDATIONS
    drawn = [frame for frame in frames if "BLEU-4" not in frame]
    assert all(len(frame) <= width for frame in drawn)
    assert sorted(drawn, key=lambda text: text[:9]) == drawn  # epochs one after the other
    assert sum(frame.startswith("epoch 2/4, validation") for frame in drawn) == 3
    if width > 40:
        assert any(frame.startswith("epoch 2/4, validation: scoring 4 captions ... |") for frame in drawn)
        assert re.fullmatch(r"epoch 4/4, step 40/40, loss 2.500, best CIDEr 45.7, lr 1.0e-01 \|█+\|", drawn[-1])
