"""`metrics.csv` by hand, event files as TensorBoard itself reads them, and W&B's real package without a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import composed
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import captioning
from captioning.config.check import check
from captioning.errors import CaptioningError
from captioning.training.loggers.metrics_file import MetricsFile
from captioning.training.loggers.tensorboard import TensorBoard


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_rows_by_hand(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.csv")
    log.keep(before=0)  # there is nothing to keep
    log.log_metrics({"b": 1.5}, step=0)
    assert lines(log.path) == ["b,step", "1.5,0"]  # at once
    log.log_metrics({"b": 2, "a": 3}, step=1)
    log.log_metrics({"c": 4}, step=1)
    assert lines(log.path) == ["a,b,c,step", ",1.5,,0", "3,2,,1", ",,4,1"]
    with log.path.open("a") as file:
        file.write("4,,,1")  # a row that a killed run has begun, of step 10
    resumed = MetricsFile(log.path)
    resumed.keep(before=1)
    assert lines(log.path) == ["b,step", "1.5,0"]
    resumed.log_metrics({"b": 7}, step=1)
    assert lines(log.path) == ["b,step", "1.5,0", "7,1"]


def test_what_comes_again_after_resuming_is_there_once_in_tensorboard(tmp_path: Path) -> None:
    """Also where the run was killed, and where another stage follows the end of one."""
    folder = tmp_path / "tensorboard"
    for first, offset in ((0, 0.0), (3, 0.5)):
        logger = TensorBoard(folder)
        for step in range(first, 5):
            logger.log_metrics({"train/nll": step + offset}, step)
            logger.finalize("success")
    logger.log_metrics({"test/CIDEr": 7.0}, 4)
    logger.finalize("success")
    found = EventAccumulator(str(folder)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("train/nll")] == [(0, 0), (1, 1), (2, 2), (3, 3.5), (4, 4.5)]
    assert [(e.step, e.value) for e in found.Scalars("test/CIDEr")] == [(4, 7)]


def test_without_the_package_it_is_said_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.utils.tensorboard", "captioning.training.loggers.tensorboard"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("captioning.training.loggers.tensorboard")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(CaptioningError, match=r"pip install 'captioning\[tensorboard\]'"):
        check(composed("logger=tensorboard"))


LOG = """
import logging, sys
logging.basicConfig(format="%(message)s")
from captioning.training.loggers import wandb as ours
ours.TIMEOUT = 3
for _ in range(2):
    logger = ours.wandb_logger(save_dir=sys.argv[1], project="trial", log_model=True)
    logger.log_metrics({"loss": 1.0}, step=0)
    print(logger.experiment.id, logger.experiment.offline)
    logger.experiment.finish()
"""


def test_wandb_unreachable_stays_here_and_is_one_run(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOG, str(tmp_path)],
        env=os.environ
        | {
            "PYTHONPATH": str(Path(captioning.__file__).parents[1]),
            "WANDB_API_KEY": "0" * 40,
            "WANDB_BASE_URL": "http://127.0.0.1:9",  # where nobody listens
            "WANDB_SILENT": "true",
        },
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n")[:2] == [f"{(tmp_path / 'wandb_id').read_text()} True"] * 2
    # once: the second does not try again
    assert ended.stderr.count(f"The run is kept in {tmp_path}; `wandb sync` uploads it later") == 1
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
