"""`make soak`: too long for every change."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_resume import COMMAND, ENVIRONMENT, EVERYTHING, run, same, the_folder

KILLS = 20
LONGER = [*EVERYTHING, "trainer.max_epochs=240", "callbacks.early_stopping=null"]

pytestmark = pytest.mark.soak


def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    """Some fall into a step, some into a validation, some into the writing of a file."""
    whole = run(tmp_path, *LONGER, "runs=whole")
    assert whole.returncode == 0, whole.stderr
    command = [*COMMAND, *LONGER, "runs=killed", "resume=true"]
    moments = random.Random(0)
    for kill in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-m", "captioning.run", *command],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        training = any(line.startswith("run folder: ") for line in process.stdout)
        assert training, f"ended before kill {kill}"
        time.sleep(moments.uniform(0, 4))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"ended before kill {kill}"
        process.stdout.close()
    ended = run(tmp_path, *LONGER, "runs=killed", "resume=true")
    assert ended.returncode == 0, ended.stderr
    same(the_folder(tmp_path / "whole"), the_folder(tmp_path / "killed"))
