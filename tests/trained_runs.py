"""What the fixtures of `conftest.py` give."""

from dataclasses import dataclass
from pathlib import Path

LONGER = [
    "trainer.max_epochs=30",
    "trainer.check_val_every_n_epoch=30",
    "trainer.limit_train_batches=1.0",
    "data.batch_size=8",
    "model.dropout=0",
]
"""Until captions have words, and differ."""


@dataclass(frozen=True)
class Run:
    """What a run has left: the checkpoint, moved away from everything else, and the test images with their captions."""

    checkpoint: Path
    photographs: list[Path]
    captions: list[str]


@dataclass(frozen=True)
class CachedRun(Run):
    """A run with a frozen backbone, and that backbone's digest before anything was saved."""

    digest: str
