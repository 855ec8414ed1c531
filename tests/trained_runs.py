"""What the fixtures of `conftest.py` give."""

from dataclasses import dataclass
from pathlib import Path


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
