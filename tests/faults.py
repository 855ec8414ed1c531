"""What happens inside of the processes that tests start: parts that let them die, and commands that
last.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Literal

import lightning as L
import torch

from captioning import run
from captioning.backbones.scratch import SmallCNN
from captioning.data.image_files import fingerprints
from captioning.features import build


class Fault(L.Callback):
    """In the second step the process `rank` is killed, as the system does where memory is short, or
    has an error; the others wait as if for an answer that never comes.
    """

    def __init__(self, rank: int, kind: Literal["kill", "error"]):
        self.rank, self.kind = rank, kind

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step < 1:
            return
        if trainer.global_rank != self.rank:
            time.sleep(3600)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("an error of one process")


class Killer(L.Callback):
    """KILL=train:7 kills its own process before the seventh batch of training, validation:2 before
    the second of validation, save:3 in the middle of the third writing of a checkpoint, after:900
    when that many milliseconds have passed; KILL_WITH is the signal, KILL_GROUP lets another
    process send it to all of the group. KILL_WORKER and RENAME let it kill a
    worker or rename the run's folder instead.
    """

    def __init__(self):
        point, _, number = os.environ.get("KILL", "never:0").partition(":")
        self.point, self.left = point, int(number)
        self.signal = getattr(signal, os.environ.get("KILL_WITH", "SIGKILL"))
        synced = os.fsync

        def fsync(file):
            if ".ckpt" in str(Path(f"/proc/self/fd/{file}").readlink()):
                if self.left == 1:
                    os.ftruncate(file, 1000)  # the rest had not reached the disk
                self.passed("save")
            synced(file)

        if point == "save":
            os.fsync = fsync
        if point == "after":
            threading.Timer(self.left / 1000, os.kill, (os.getpid(), self.signal)).start()

    def passed(self, point):
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                if "KILL_WORKER" in os.environ:
                    multiprocessing.active_children()[0].kill()
                elif "RENAME" in os.environ:
                    next(Path("runs").iterdir()).rename(os.environ["RENAME"])
                elif "KILL_GROUP" in os.environ:
                    subprocess.run(
                        ["sh", "-c", f"kill -s {self.signal.name[3:]} -- -{os.getpgrp()}"]
                    )
                else:
                    os.kill(os.getpid(), self.signal)

    def on_train_batch_start(self, *_):
        self.passed("train")

    def on_validation_batch_start(self, *_):
        self.passed("validation")

    def on_test_batch_start(self, *_):
        self.passed("test")


class SlowCNN(SmallCNN):
    """Takes its time, and writes down that it does."""

    def forward(self, images):
        with Path("batches").open("a") as file:
            file.write("x")
        time.sleep(0.1)
        return super().forward(images)


def train():
    return run.main()


def compute_features():
    torch.manual_seed(0)
    paths = sorted(Path("photographs").iterdir())
    backbone = SlowCNN(3, 32, 2, trainable=False)
    build.BATCH = 2
    batches_from = partial(build.compute_features, backbone, paths, num_workers=2)
    build.FeatureStore(Path("cache")).copied(backbone, fingerprints(paths), batches_from, "test")


WRITES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "tempfile.mkdtemp"}
"""Events of Python's audit of which a file system knows, beside those of files opened to write."""


def at_a_write():
    """The command COMMAND, with SIGINT before the event AT of those that write in this folder."""
    place, count = f"{Path.cwd()}{os.sep}", 0

    def audit(event, given):
        nonlocal count
        opened = event == "open" and isinstance(given[2], int) and given[2] & os.O_CREAT
        if not (opened or event in WRITES) or isinstance(given[0], int):
            return
        if str(Path(os.fsdecode(given[0])).absolute()).startswith(place):
            count += 1
            if count == int(os.environ["AT"]):
                os.kill(os.getpid(), signal.SIGINT)

    command = import_module(f"captioning.{os.environ['COMMAND']}")
    sys.addaudithook(audit)
    command.main()


def end_slowly():
    """Not within this life, and without a look at signals."""
    Path("beginning").touch()
    try:
        while True:
            time.sleep(0.01)
    finally:
        Path("ending").touch()
        sum(range(10**12))
