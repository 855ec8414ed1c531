"""A profiler for Lightning's trainer: where the time of a run goes, once it is its turn."""

import json
import resource
import time
from collections import defaultdict
from pathlib import Path

import torch
from lightning.pytorch.profilers import Profiler

FETCH = "[_TrainingEpochLoop].train_dataloader_next"
STEP = "run_training_batch"
DECODE = "validation_step"
SCORE = "on_validation_epoch_end"


class Watch(Profiler):
    """Seconds of each of the trainer's actions, written to `output` when the run ends.

    Args:
        turn: a file for which training waits, once `ready` exists beside `output`, so that of
            several runs that have read their captions one trains alone.
    """

    def __init__(self, output: str, turn: str) -> None:
        super().__init__()
        self.output, self._turn = Path(output), Path(turn)
        self._seconds, self._count = defaultdict[str, float](float), defaultdict[str, int](int)
        self._begun: dict[str, float] = {}
        self._first = self._last = 0.0

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        super().setup(stage, local_rank, log_dir)
        if stage == "fit":
            self.output.with_suffix(".ready").touch()
            while not self._turn.exists():
                time.sleep(0.05)

    def start(self, action_name: str) -> None:
        now = time.perf_counter()
        self._begun[action_name] = now
        if action_name == FETCH and not self._first:
            self._first = now
        if action_name.endswith(f".{SCORE}"):  # the first of those is a callback's
            self._write()

    def stop(self, action_name: str) -> None:
        if action_name in self._begun:
            now = time.perf_counter()
            self._seconds[action_name] += now - self._begun.pop(action_name)
            self._count[action_name] += 1
            if action_name == STEP:
                self._last = now

    def describe(self) -> None:  # called by the trainer at the end
        if self._stage == "fit":
            self._write()

    def _write(self) -> None:
        found = {
            "steps": self._count[STEP],
            "seconds": self._last - self._first,
            "seconds of waiting": self._seconds[FETCH],
            "seconds of decoding": self._of(f".{DECODE}"),
            "seconds of scoring": self._of(f"CaptioningModule.{SCORE}"),
            "GPU memory": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
            "memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }
        part = self.output.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(self.output)

    def _of(self, end: str) -> float:
        return sum(seconds for name, seconds in self._seconds.items() if name.endswith(end))
