"""A callback that lets one process of a run die, while the others wait as if for an answer that never comes."""

import os
import signal
import time
from typing import Any, Literal

import lightning as L


class Fault(L.Callback):
    """In the second step the process `rank` is killed, as the system does where memory is short, or has an error."""

    def __init__(self, rank: int, kind: Literal["kill", "error"]) -> None:
        self.rank, self.kind = rank, kind

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step < 1:
            return
        if trainer.global_rank != self.rank:
            time.sleep(3600)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("an error of one process")
