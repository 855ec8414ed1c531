"""`metrics.csv` by hand, event files as TensorBoard itself reads them, and W&B's real package
without a network.
"""

import logging
import os

from processes import LIMIT, PROCESSES
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from captioning.training.loggers import wandb as ours
from captioning.training.loggers.metrics_file import MetricsFile
from captioning.training.loggers.tensorboard import TensorBoard


def lines(path):
    return path.read_text().splitlines()


def test_rows_by_hand(tmp_path):
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


def test_tensorboard_has_once_what_comes_again_after_resuming(tmp_path):
    """Also where another stage follows the end of one."""
    for first, offset in ((0, 0.0), (3, 0.5)):
        logger = TensorBoard(tmp_path)
        for step in range(first, 5):
            logger.log_metrics({"train/nll": step + offset}, step)
            logger.finalize("success")
    logger.log_metrics({"test/CIDEr": 7.0}, 4)
    logger.finalize("success")
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in found.Scalars("train/nll")] == [0, 1, 2, 3.5, 4.5]
    assert [(event.step, event.value) for event in found.Scalars("test/CIDEr")] == [(4, 7)]


def log_twice(folder):
    os.environ |= {"WANDB_API_KEY": "0" * 40, "WANDB_SILENT": "true", "WANDB_HTTP_TIMEOUT": "1"}
    os.environ["WANDB_BASE_URL"] = "http://127.0.0.1:9"  # where nobody listens
    ours.TIMEOUT = 1
    logging.basicConfig(filename=folder / "log", format="%(message)s", level=logging.INFO)
    for _ in range(2):
        logger = ours.wandb_logger(save_dir=folder, project="trial", log_model=True)
        logger.log_metrics({"loss": 1.0}, step=0)
        assert logger.experiment.id == (folder / "wandb_id").read_text()
        assert logger.experiment.offline
        logger.experiment.finish()


def test_wandb_unreachable_stays_here_and_is_one_run(tmp_path):
    process = PROCESSES.Process(target=log_twice, args=(tmp_path,))
    process.start()
    process.join(LIMIT)
    assert process.exitcode == 0
    # once: the second does not try again
    said = (tmp_path / "log").read_text()
    assert said.count("W&B: ") == 1
    assert said.count(f"this uploads the run: wandb sync {tmp_path}/wandb/offline-run-") == 2
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
