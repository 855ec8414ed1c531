"""How many captions a second: the seconds that the logged rates stand for, held between sleeps and the whole time."""

import csv
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from captioning.data.batch import Batch, collate
from captioning.training.callbacks.throughput import Throughput
from captioning.training.loggers.metrics_file import MetricsFile

from ..world import QUIET, Idle, loader, trainer

pytestmark = QUIET

CAPTIONS = [3, 1, 4, 2, 5, 3]
"""Of the two images of each batch, of which the second has one; rows of the first are there for both."""
NAP, LONG = 0.02, 0.3


class Sleeper(Idle):
    """Trains nothing, for NAP seconds a batch, and validates nothing, for LONG seconds."""

    def training_step(self, batch: Batch, index: int) -> Tensor:
        time.sleep(NAP)
        return super().training_step(batch, index)

    def validation_step(self, batch: Batch, index: int) -> None:
        time.sleep(LONG)


def batches() -> list[Batch]:
    return [collate([0, 1], torch.zeros(2, 1, 1), [[[4]] * (count - 1), [[4, 5]]]) for count in CAPTIONS]


@pytest.mark.parametrize(
    ("settings", "intervals"),
    [
        ({"log_every_n_steps": 2}, {1: [3, 1], 3: [4, 2], 5: [5, 3], 7: [3, 1], 9: [4, 2], 11: [5, 3]}),
        # an interval that a validation interrupts
        ({"log_every_n_steps": 4}, {3: [3, 1, 4, 2], 7: [5, 3, 3, 1], 11: [4, 2, 5, 3]}),
        (
            {"log_every_n_steps": 1, "accumulate_grad_batches": 3},
            {0: [3, 1, 4], 1: [2, 5, 3], 2: [3, 1, 4], 3: [2, 5, 3]},
        ),
    ],
)
def test_captions_of_each_interval_without_validation(
    settings: dict[str, int], intervals: dict[int, list[int]], tmp_path: Path
) -> None:
    log = MetricsFile(tmp_path / "metrics.csv")
    run = trainer(max_epochs=2, logger=log, callbacks=[Throughput()], **settings)
    start = time.perf_counter()
    run.fit(Sleeper(), loader(batches()), loader(batches()[:1]))
    whole = time.perf_counter() - start
    with log.path.open() as file:
        rates = {int(row["step"]): float(row["train/captions per second"]) for row in csv.DictReader(file)}
    assert list(rates) == list(intervals)
    seconds = {step: sum(captions) / rates[step] for step, captions in intervals.items()}
    assert all(seconds[step] >= NAP * len(captions) for step, captions in intervals.items())
    assert sum(seconds.values()) <= whole - 2 * LONG
