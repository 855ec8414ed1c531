"""Ctrl-C in a terminal, and signals to all processes of a command at once, its workers among
them.
"""

import re
import signal
from functools import partial

import pytest
import torch
from convert.golden import PUBLISHED
from faults import at_a_write, compute_features, end_slowly, train
from pictures import noise
from processes import CTRL_C, in_session, interrupt, python, wait
from support import MODEL, contents
from test_resume import COMMAND

RUN = (*COMMAND, *MODEL, "data.num_workers=2", "callbacks.resume.every_n_steps=9999")
TRAINING = (*RUN, "trainer.max_epochs=99")
STOPPED = (
    r"stopped by {} after (\d+) steps, and \S+last\.ckpt has (\d+) of them\.\n"
    r"To continue: captioning run .*resume=runs/\S+$"
)


def one_sentence(ended, number, sentence):
    assert ended.status == 128 + number, ended.said
    said = re.search(sentence, ended.said, re.M)
    assert said, ended.said
    assert ended.said[said.start() :].count("\n") == 1 + sentence.count(r"\n"), ended.said
    assert not re.search(r"Traceback|Error|Warning|\b[Ww]orker", ended.said)
    wait(lambda: not in_session(ended.pid))
    return said


def steps_taken(home, count):
    """By the lines of the record, of which the first is the names of its columns."""
    records = home.glob("runs/*/metrics.csv")
    return any(file.read_text().count("\n") > count for file in records)


def last(home):
    (path,) = home.glob("runs/*/checkpoints/last.ckpt")
    return torch.load(path, weights_only=True)["global_step"]


def never():
    return False


def test_training_loses_no_step(tmp_path):
    arguments = (*TRAINING, "data.batch_size=1", "data.reader.train=400")  # an epoch that lasts
    ready = partial(steps_taken, tmp_path, 3)
    ended = interrupt(train, tmp_path, ready, CTRL_C, arguments=arguments)
    begun, saved = map(int, one_sentence(ended, signal.SIGINT, STOPPED.format("SIGINT")).groups())
    assert begun == saved == last(tmp_path) >= 2


def test_validation_costs_one_step(tmp_path):
    environment = {"KILL": "validation:1", "KILL_GROUP": "", "KILL_WITH": "SIGTERM"}
    arguments = (*TRAINING, "data.eval_batch_size=1")
    ended = interrupt(train, tmp_path, never, arguments=arguments, environment=environment)
    begun, saved = map(int, one_sentence(ended, signal.SIGTERM, STOPPED.format("SIGTERM")).groups())
    assert (begun, saved, last(tmp_path)) == (10, 9, 9)


def test_testing_keeps_the_training(tmp_path):
    environment = {"KILL": "test:1", "KILL_GROUP": "", "KILL_WITH": "SIGINT"}
    arguments = (*RUN, "trainer.max_epochs=1")
    ended = interrupt(train, tmp_path, never, arguments=arguments, environment=environment)
    one_sentence(ended, signal.SIGINT, r"stopped by SIGINT after training.*\nTo continue: ")
    assert last(tmp_path) == 10


def batches(home, count):
    return (home / "batches").exists() and len((home / "batches").read_text()) >= count


def test_features_that_are_computed_stay(tmp_path):
    for i in range(40):
        noise(tmp_path / "photographs" / f"{i}.png", (13, 9), i)
    ended = interrupt(compute_features, tmp_path, partial(batches, tmp_path, 5), CTRL_C)
    one_sentence(ended, signal.SIGINT, "stopped by SIGINT. What is finished is kept")
    before = len((tmp_path / "batches").read_text())
    again = interrupt(compute_features, tmp_path, never)
    assert again.status == 0, again.said
    assert len((tmp_path / "batches").read_text()) <= 20 + 1 < 20 + before


SGRVINOD = PUBLISHED / "sgrvinod"
WRITERS = {
    "convert.__main__": [
        "source=sgrvinod",
        f"weights={next(SGRVINOD.glob('*.tar'))}",
        f"vocabulary={next(SGRVINOD.glob('WORDMAP*'))}",
        "output=made",
    ],
    "describe.__main__": [
        "data=shapes",
        "data.reader.root=scenes",
        *(f"data.reader.{split}=2" for split in ("train", "val", "test")),
        "output=made",
    ],
    "export.__main__": ["checkpoint=best.ckpt", "output=made"],
    "predict": ["checkpoint=best.ckpt", "images", "attention=true", "panels=made"],
    "push.__main__": ["checkpoint=best.ckpt", "to=made"],
}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(name, marks=() if name[:6] == "export" else pytest.mark.soak)
        for name in WRITERS
    ],
)
def test_whatever_is_written_is_whole_or_not_there(command, shapes_run, tmp_path):
    """A signal before each file or folder that is made, renamed or removed."""

    def at(number):
        home = tmp_path / str(number)
        (home / "tmp").mkdir(parents=True)
        (home / "best.ckpt").symlink_to(shapes_run.checkpoint)
        (home / "images").mkdir()
        for photograph in shapes_run.photographs[:2]:
            (home / "images" / photograph.name).symlink_to(photograph)
        environment = {"AT": str(number), "COMMAND": command, "TMPDIR": str(home / "tmp")}
        return home, interrupt(
            at_a_write, home, never, arguments=WRITERS[command], environment=environment
        )

    home, ended = at(-1)
    assert ended.status == 0, ended.said
    whole = {name: content for name, (_, content) in contents(home).items()}
    for number in range(1, 99):
        home, ended = at(number)
        if ended.status == 0:
            break
        one_sentence(ended, signal.SIGINT, r"stopped by SIGINT\. What is finished is kept")
        left = {name: content for name, (_, content) in contents(home).items()}
        assert left.keys() <= whole.keys(), number
        assert all(left[name] == whole[name] for name in left if name[-3:] != "pdf"), number
    assert number > 3


def begun_and_ending(home):
    """First the one, which is taken away, then the other."""
    for path in home.glob("*ing"):
        path.unlink()
        return True
    return False


def test_the_second_one_ends_at_once(tmp_path):
    ended = interrupt(end_slowly, tmp_path, partial(begun_and_ending, tmp_path), CTRL_C, CTRL_C)
    assert ended.status == -signal.SIGINT, ended.said


def test_a_command_that_is_still_imported_stops_at_once():
    interrupted = "runpy.run_module = lambda *given, **named: os.kill(os.getpid(), signal.SIGINT)"
    program = (
        f"import os, runpy, signal\nfrom captioning.__main__ import main\n{interrupted}\nmain()"
    )
    ended = python("-c", program, "run")
    assert (ended.returncode, ended.stderr) == (130, "\nstopped by SIGINT before it began\n")


def test_a_signal_is_not_lost_where_python_ignores_exceptions():
    program = """
import os, signal, sys, time
from captioning.config.command import start
class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
def main():
    Last()
    time.sleep(60)
start(main)
"""
    ended = python("-c", program)
    assert ended.returncode == 130
    assert ended.stderr.startswith("\nstopped by SIGINT")


def test_workers_do_not_outlive_a_killed_process(tmp_path):
    ended = interrupt(train, tmp_path, never, arguments=TRAINING, environment={"KILL": "train:3"})
    assert ended.status == -signal.SIGKILL, ended.said
    wait(lambda: not in_session(ended.pid))
