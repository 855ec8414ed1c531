"""One test by a real trainer that several test modules look at."""

from pathlib import Path
from typing import NamedTuple

import pytest
from torch import Tensor

from captioning.training.callbacks.records import AttentionPanels, KeepAttention, Results
from captioning.training.callbacks.statistics import LogAttentionStatistics, LogWording, Pointing
from captioning.training.callbacks.timing import Stopwatch

from .tested import run_test


class Outcome(NamedTuple):
    folder: Path
    metrics: dict[str, Tensor]


@pytest.fixture(scope="session")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The pointer of `tested.py`, with all callbacks of a test."""
    folder = tmp_path_factory.mktemp("tested")
    records = [Results(folder), AttentionPanels(folder / "attention", images=3), KeepAttention(folder, images=3)]
    callbacks = [Pointing(), LogAttentionStatistics(), LogWording(), Stopwatch("val/CIDEr"), *records]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LC_ALL", "C")
        return Outcome(folder, dict(run_test(folder, callbacks, metrics=("BLEU", "CIDEr")).callback_metrics))
