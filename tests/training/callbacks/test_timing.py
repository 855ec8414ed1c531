"""Seconds of training, captions per second, and `torch.compile`."""

import csv
import shutil
import time
from pathlib import Path

import pytest
import torch
from processes import run as run_command
from support import SHAPES
from torch import Tensor

from captioning.data.batch import Batch, collate
from captioning.errors import CaptioningError
from captioning.training.callbacks.timing import Compile, Stopwatch, Throughput
from captioning.training.loggers.metrics_file import MetricsFile

from ..world import QUIET, Idle, batch, loader, module, noted, trainer

pytestmark = QUIET
NAP, LONG = 0.02, 0.3
"""Seconds of a batch and of a validation."""


class Sleeper(Idle):
    """Trains nothing; its validation scores are known."""

    def __init__(self, scores: list[float], nap: float = 0.0, long: float = 0.0) -> None:
        super().__init__()
        self.scores, self.nap, self.long = scores, nap, long

    def training_step(self, batch: Batch, index: int) -> Tensor:
        time.sleep(self.nap)
        return super().training_step(batch, index)

    def validation_step(self, batch: Batch, index: int) -> None:
        time.sleep(self.long)
        self.log("val/score", self.scores[self.current_epoch], batch_size=1)


def run(stopwatch: Stopwatch, scores: list[float]) -> list[float]:
    callback, times = noted(lambda *_: stopwatch.trained, "on_validation_end")
    batches = loader([torch.zeros(1)])
    trainer(max_epochs=len(scores), callbacks=[stopwatch, callback]).fit(Sleeper(scores), batches, batches)
    return times


@pytest.mark.parametrize(("mode", "scores", "best"), [("max", [1, 3, 2, 3], 1), ("min", [4.0, 5, 2, 3], 2)])
def test_time_to_the_best_validation_of_a_run_that_is_resumed(mode: str, scores: list[float], best: int) -> None:
    first, second, other = Stopwatch("val/score", mode), Stopwatch("val/score", mode), Stopwatch("val/other")
    times = run(first, scores)
    assert times == sorted(times)
    assert times[best - 1] < first.to_best <= times[best]
    assert 0 < first.to_best < times[-1] <= first.trained
    second.load_state_dict(first.state_dict())
    run(second, [2.5])  # no better
    assert second.trained > first.trained
    assert second.to_best == first.to_best
    run(other, [1.0])  # a score that is never logged
    assert other.trained > other.to_best == 0


@pytest.mark.parametrize(
    ("log_every", "windows", "intervals"),
    [
        # an interval that a validation interrupts
        (4, 1, {3: [3, 1, 4, 2], 7: [5, 3, 3, 1], 11: [4, 2, 5, 3]}),
        (1, 3, {0: [3, 1, 4], 1: [2, 5, 3], 2: [3, 1, 4], 3: [2, 5, 3]}),
    ],
)
def test_captions_of_each_interval_without_validation(
    log_every: int, windows: int, intervals: dict[int, list[int]], tmp_path: Path
) -> None:
    """Of the two images of each batch the second has one caption; rows of the first are there for both."""
    log, settings = MetricsFile(tmp_path / "metrics.csv"), {"accumulate_grad_batches": windows}
    run = trainer(max_epochs=2, logger=log, log_every_n_steps=log_every, callbacks=[Throughput()], **settings)
    features = torch.zeros(2, 1, 1)
    batches = [collate([0, 1], features, [[[4]] * (count - 1), [[4, 5]]]) for count in (3, 1, 4, 2, 5, 3)]
    start = time.perf_counter()
    run.fit(Sleeper([0, 0], NAP, LONG), loader(batches), loader(batches[:1]))
    whole = time.perf_counter() - start
    with log.path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["train/captions per second"]]
    rates = {int(row["step"]): float(row["train/captions per second"]) for row in rows}
    assert list(rates) == list(intervals)
    seconds = {step: sum(captions) / rates[step] for step, captions in intervals.items()}
    assert all(seconds[step] >= NAP * len(captions) for step, captions in intervals.items())
    assert sum(seconds.values()) <= whole - 2 * LONG


COMMAND = [*SHAPES, "model.dropout=0", "trainer.limit_train_batches=3", "trainer.log_every_n_steps=1", "test=false"]


@pytest.mark.soak  # a minute of compiling
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_networks_learn_the_same(tmp_path: Path) -> None:
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    logged = []
    for choice in ("default", "compiled"):
        run_command(tmp_path, *COMMAND, f"callbacks={choice}", f"runs={choice}", **inductor)
        with next((tmp_path / choice).glob("*/metrics.csv")).open() as file:
            rows = list(csv.DictReader(file))
        logged.append([float(row[name]) for name in ("train/nll", "val/nll") for row in rows if row[name]])
    assert any((tmp_path / "inductor").rglob("*.cpp")), "nothing was compiled"
    assert len(logged[0]) == 4
    assert logged[1] == pytest.approx(logged[0], abs=1e-5)


def test_without_a_compiler_training_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CaptioningError, match="callbacks=compiled needs a C"):
        trainer(callbacks=[Compile()]).fit(module(), loader([batch(0, 1)]))
