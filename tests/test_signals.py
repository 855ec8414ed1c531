"""Ctrl-C in a terminal, and signals to all processes of a command at once, its workers among them."""

import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from interrupted import CTRL_C, Interrupted, compute_features, draw, end_slowly, terminals, train, wait_for_the_end_of
from PIL import Image
from test_resume import COMMAND, TRANSFORMER

Interrupt = Callable[..., Interrupted]
RUN = (*COMMAND, *TRANSFORMER, "data.num_workers=2", "callbacks.resume.every_n_steps=9999")
TRAINING = (*RUN, "trainer.max_epochs=99")
STOPPED = r"stopped by {} after (\d+) steps, and \S+last\.ckpt has (\d+) of them\. To continue, give the same command"


@pytest.fixture(scope="module")
def interrupt() -> Iterator[Interrupt]:
    with terminals() as interrupt:
        yield interrupt


def one_sentence(ended: Interrupted, number: int, sentence: str) -> re.Match[str]:
    assert ended.status == 128 + number, ended.said
    found = re.search(sentence, ended.said)
    assert found, ended.said
    assert ended.said[found.start() :].count("\n") == 1, ended.said
    assert not re.search("Traceback|Error|Warning|[Ww]orker", ended.said)
    wait_for_the_end_of(ended.pid)
    return found


def steps_taken(home: Path, count: int) -> bool:
    """By the lines of the record, of which the first is the names of its columns."""
    return any(len(file.read_text().splitlines()) > count for file in home.glob("runs/*/metrics.csv"))


def last(home: Path) -> int:
    (path,) = home.glob("runs/*/checkpoints/last.ckpt")
    return torch.load(path, weights_only=True)["global_step"]


@pytest.mark.parametrize(("how", "number"), [(CTRL_C, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_training_loses_no_step(interrupt: Interrupt, tmp_path: Path, how: bytes | int, number: signal.Signals) -> None:
    arguments = (*TRAINING, "data.batch_size=1", "data.reader.train=800")  # an epoch that lasts
    ended = interrupt(train, tmp_path, partial(steps_taken, tmp_path, 3), how, arguments=arguments)
    begun, saved = map(int, one_sentence(ended, number, STOPPED.format(number.name)).groups())
    assert begun == saved == last(tmp_path) >= 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_validation_costs_one_step(interrupt: Interrupt, tmp_path: Path, number: signal.Signals) -> None:
    environment = {"KILL": "validation:1", "KILL_GROUP": "", "KILL_WITH": number.name}
    arguments = (*TRAINING, "data.eval_batch_size=1")
    ended = interrupt(train, tmp_path, never, arguments=arguments, environment=environment)
    begun, saved = map(int, one_sentence(ended, number, STOPPED.format(number.name)).groups())
    assert (begun, saved, last(tmp_path)) == (10, 9, 9)


def never() -> bool:
    return False


def test_testing_keeps_the_training(interrupt: Interrupt, tmp_path: Path) -> None:
    environment = {"KILL": "test:1", "KILL_GROUP": "", "KILL_WITH": "SIGINT"}
    arguments = (*RUN, "trainer.max_epochs=1")
    ended = interrupt(train, tmp_path, never, arguments=arguments, environment=environment)
    one_sentence(ended, signal.SIGINT, "stopped by SIGINT after training")
    assert last(tmp_path) == 10


def batches(home: Path, count: int) -> bool:
    return (home / "batches").exists() and len((home / "batches").read_text()) >= count


@pytest.mark.parametrize(("how", "number"), [(CTRL_C, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_features_that_are_computed_stay(
    interrupt: Interrupt, tmp_path: Path, how: bytes | int, number: signal.Signals
) -> None:
    (tmp_path / "photographs").mkdir()
    for i in range(40):
        pixels = np.random.default_rng(i).integers(0, 256, (9, 13, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photographs" / f"{i}.png")
    ended = interrupt(compute_features, tmp_path, partial(batches, tmp_path, 5), how)
    one_sentence(ended, number, f"stopped by {number.name}. What is finished is kept")
    before = len((tmp_path / "batches").read_text())
    again = interrupt(compute_features, tmp_path, never)
    assert again.status == 0, again.said
    assert len((tmp_path / "batches").read_text()) <= 20 + 1 < 20 + before


def drawn(home: Path) -> bool:
    return len(list(home.glob("cache/.shapes-*/train/*.png"))) > 5


@pytest.mark.parametrize(("how", "number"), [(CTRL_C, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)])
def test_drawing_leaves_no_part(interrupt: Interrupt, tmp_path: Path, how: bytes | int, number: signal.Signals) -> None:
    ended = interrupt(draw, tmp_path, partial(drawn, tmp_path), how)
    one_sentence(ended, number, f"stopped by {number.name}. What is finished is kept")
    assert list((tmp_path / "cache").iterdir()) == []


def begun_and_ending(home: Path) -> bool:
    """First the one, which is taken away, then the other."""
    for path in home.glob("*ing"):
        path.unlink()
        return True
    return False


def test_the_second_one_ends_at_once(interrupt: Interrupt, tmp_path: Path) -> None:
    ended = interrupt(end_slowly, tmp_path, partial(begun_and_ending, tmp_path), CTRL_C, CTRL_C)
    assert ended.status == -signal.SIGINT, ended.said


def test_workers_do_not_outlive_a_killed_process(interrupt: Interrupt, tmp_path: Path) -> None:
    environment = {"KILL": "train:3"}
    ended = interrupt(train, tmp_path, never, arguments=TRAINING, environment=environment)
    assert ended.status == -signal.SIGKILL, ended.said
    wait_for_the_end_of(ended.pid)
