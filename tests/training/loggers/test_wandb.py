"""The real package in a process of its own, without a network."""

import os
import subprocess
import sys
from pathlib import Path

import captioning
from captioning.training.loggers.wandb import WandbRecord

from ..tested import run_test
from ..world import QUIET

pytestmark = QUIET

LOG = """
import logging, sys
logging.basicConfig(format="%(message)s")
from captioning.training.loggers import wandb as ours
ours.TIMEOUT = 3
for _ in range(2):
    logger = ours.wandb_logger(save_dir=sys.argv[1], project="trial", log_model=True)
    logger.log_metrics({"loss": 1.0}, step=0)
    print(logger.experiment.id, logger.experiment.offline, repr(logger.version))
    logger.experiment.finish()
"""


def test_unreachable_it_stays_here_and_is_one_run(tmp_path: Path) -> None:
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
    first, second = ended.stdout.split("\n")[:2]
    assert first == second == f"{(tmp_path / 'wandb_id').read_text()} True ''"  # nothing for the progress bar
    # once: the second does not try again
    assert ended.stderr.count(f"The run is kept in {tmp_path}; `wandb sync` uploads it later") == 1
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_without_the_logger_nothing_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "photographs").mkdir()
    run_test(tmp_path / "photographs", [WandbRecord(tmp_path / "run", images=2)])
    assert not (tmp_path / "run").exists()
