"""Lines and bars of progress, seconds of training, captions per second, and `torch.compile`."""

import csv
import logging
import math
import re
import shutil
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from processes import run as run_command
from refusals import refuses
from support import SHAPES, Terminal

from captioning.data.batch import collate
from captioning.metrics import Scores
from captioning.training.callbacks import progress
from captioning.training.callbacks.compilation import Compile
from captioning.training.callbacks.progress import Progress
from captioning.training.callbacks.resume import ResumePoints
from captioning.training.callbacks.timing import Stopwatch, Throughput
from captioning.training.loggers.metrics_file import MetricsFile

from ..world import QUIET, batch, loader, module, noted, trainer

pytestmark = QUIET
BATCHES = [torch.zeros(1)] * 10
SCORES = [12.34, 45.67, 23.41, 45.67]
VALIDATIONS = [
    f"epoch {i}/4, step {i}0/40, loss 2.500, BLEU-4 9.0, CIDEr {cider}{others}, best CIDEr {best}"
    for i, (cider, others, best) in enumerate(
        [
            (12.3, ", SPICE 12.0", 12.3),
            *((cider, ", WordF1 51.25", 45.7) for cider in (45.7, 23.4, 45.7)),
        ],
        start=1,
    )
]


class Scored(L.LightningModule):
    """Logs as the captioning module does; two captions for each batch of validation; may end with a
    fault.
    """

    def __init__(self, scores=SCORES, fault=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))  # whose loss has the same slope everywhere
        self.scores, self.fault = scores, fault
        self.latest = {}

    def training_step(self, batch, index):
        if self.global_step == self.fault:
            raise RuntimeError("a fault")
        self.log("train/nll", 2.5, batch_size=1)
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def validation_step(self, batch, index):
        return ["a", "b"]

    def on_validation_epoch_end(self):
        self.log_dict({"val/BLEU-4": 9.0, "val/CIDEr": self.scores[self.current_epoch]})
        if self.current_epoch:  # later SPICE fails
            corpus = {"WordF1": 51.25, "BLEU-1": 30.0, "SPICE": math.nan}
            self.latest = {"val": Scores(corpus, [])}
        else:
            self.log("val/SPICE", 12.0)

    test_step = validation_step


def train(folder, *callbacks, point=None, fault=None, **more):
    best = ModelCheckpoint(
        folder, monitor="val/CIDEr", mode="max", filename="best", enable_version_counter=False
    )
    settings = {"max_epochs": 4, "enable_progress_bar": True, "enable_checkpointing": True, **more}
    found = trainer(**settings, callbacks=[*callbacks, best])
    found.fit(Scored(fault=fault), loader(BATCHES), loader(BATCHES[:2]), ckpt_path=point)
    return found


def test_lines_of_a_log_file(tmp_path, caplog):
    """For each validation, and in between, on the first of several processes, from the step where
    training goes on.
    """
    caplog.set_level(logging.INFO)

    def lines():
        records = [each for each in caplog.records if each.name.startswith("captioning")]
        caplog.clear()
        return [re.sub(r", \d+ s left", "", record.getMessage()) for record in records]

    ended = train(tmp_path, Progress())
    assert lines() == ["training: 40 steps", *VALIDATIONS]
    ended.test(ended.lightning_module, loader(BATCHES[:2]), verbose=False)
    assert lines() == ["test: scoring the captions ..."]
    train(tmp_path, Progress(every_seconds=0), max_epochs=1, accumulate_grad_batches=2)
    assert lines() == [
        "training: 5 steps",
        *(f"epoch 1/1, step {batch // 2}/5, loss 2.500" for batch in range(1, 11)),
        "epoch 1/1, step 5/5, loss 2.500, BLEU-4 9.0, CIDEr 12.3, SPICE 12.0, best CIDEr 12.3",
    ]
    silent = Progress(every_seconds=0)
    silent.disable()  # as Lightning does on the others
    train(tmp_path, silent, max_epochs=1)
    assert lines() == []

    points = ResumePoints(tmp_path, every_n_steps=4)
    with pytest.raises(RuntimeError, match="a fault"):
        train(tmp_path, Progress(), points, fault=16)
    lines()
    train(tmp_path, Progress(every_seconds=0), points, point=tmp_path / "last.ckpt")
    first, second, *others = lines()
    done = int(first.removeprefix("training: 40 steps, of which ").split()[0])
    assert 10 < done < 16
    assert second == f"epoch 2/4, step {done + 1}/40, loss 2.500, best CIDEr 12.3"
    assert VALIDATIONS[1] in others


def test_a_run_tells_early_how_long_it_will_take(tmp_path, caplog, monkeypatch):
    """A first step of 100 s, and 39 of 2 s: after three of these 72 s are left."""
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    caplog.set_level(logging.INFO)

    def compute(trainer, *_):
        now[0] += 2.0 if trainer.global_step > 1 else 100.0

    clock, _ = noted(compute)
    train(tmp_path, clock, Progress(every_seconds=1000))
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("captioning")]
    assert lines[:2] == ["training: 40 steps", "training will take about 1 min"]
    assert len(lines) == 2 + len(VALIDATIONS)


def test_a_terminal_has_bars_and_a_line_for_each_validation(tmp_path, monkeypatch):
    with Terminal(120, monkeypatch), Terminal(120, monkeypatch, "stdout") as terminal:
        train(tmp_path, Progress(refresh_rate=1))
    frames = [re.sub(r", \d+ s left", "", frame) for frame in terminal.frames()]
    assert [frame for frame in frames if "BLEU-4" in frame] == VALIDATIONS
    assert any(frame.startswith("Validation") for frame in frames)
    assert re.search(r"epoch 4: 100%.*loss=2.500, best CIDEr=45.7", terminal.text)


def run(stopwatch, scores):
    callback, times = noted(lambda *_: stopwatch.trained, "on_validation_end")
    batches = loader([torch.zeros(1)])
    trainer(max_epochs=len(scores), callbacks=[stopwatch, callback]).fit(
        Scored(scores), batches, batches
    )
    return times


@pytest.mark.parametrize(
    "mode, scores, best", [("max", [1, 3, 2, 3], 1), ("min", [4.0, 5, 2, 3], 2)]
)
def test_time_to_the_best_validation_of_a_run_that_is_resumed(mode, scores, best):
    first, second = Stopwatch("val/CIDEr", mode), Stopwatch("val/CIDEr", mode)
    times = run(first, scores)
    assert times == sorted(times)
    assert times[best - 1] < first.to_best <= times[best]
    assert 0 < first.to_best < times[-1] <= first.trained
    second.load_state_dict(first.state_dict())
    run(second, [2.5])  # no better
    assert second.trained > first.trained
    assert second.to_best == first.to_best


@pytest.mark.parametrize("log_every, windows, steps", [(4, 1, [3, 7, 11]), (1, 3, [0, 1, 2, 3])])
def test_captions_per_second_of_each_interval(log_every, windows, steps, tmp_path):
    log, settings = MetricsFile(tmp_path / "metrics.csv"), {"accumulate_grad_batches": windows}
    settings |= {"max_epochs": 2, "log_every_n_steps": log_every}
    captions = [[[[4]] * (count - 1), [[4, 5]]] for count in (3, 1, 4, 2, 5, 3)]
    batches = [collate([0, 1], torch.zeros(2, 1, 1), each) for each in captions]
    run = trainer(logger=log, callbacks=[Throughput()], **settings)
    run.fit(Scored(), loader(batches), loader(batches[:1]))
    with log.path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["train/captions per second"]]
    assert [int(row["step"]) for row in rows] == steps
    assert all(float(row["train/captions per second"]) > 0 for row in rows)


COMMAND = [*SHAPES, "model.dropout=0", "trainer.limit_train_batches=3", "test=false"]
COMMAND += ["trainer.log_every_n_steps=1"]


@pytest.mark.soak  # a minute of compiling
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_networks_learn_the_same(tmp_path):
    names = "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS"
    inductor = dict(zip(names, (str(tmp_path / "inductor"), "1"), strict=True))
    logged = []
    for choice in ("default", "compiled"):
        run_command(tmp_path, *COMMAND, f"callbacks={choice}", f"runs={choice}", **inductor)
        with next((tmp_path / choice).glob("*/metrics.csv")).open() as file:
            rows = list(csv.DictReader(file))
        columns = "train/nll", "val/nll"
        logged.append([float(row[name]) for name in columns for row in rows if row[name]])
    assert any((tmp_path / "inductor").rglob("*.cpp")), "nothing was compiled"
    assert len(logged[0]) == 4
    assert logged[1] == pytest.approx(logged[0], abs=1e-5)


def test_without_a_compiler_training_does_not_start(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with refuses("callbacks=compiled needs a C"):
        trainer(callbacks=[Compile()]).fit(module(), loader([batch(0, 1)]))
