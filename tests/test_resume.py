"""Runs that are interrupted end as if they had not been; each process is a real one and killed for
real.
"""

import random
import signal
from pathlib import Path

import pytest
import torch
from processes import forked
from support import FROZEN, MODEL, flickr8k, rows_of

COMMAND = [
    "data.vocabulary.min_count=1",
    "data.reader.train=80",
    "data.reader.val=5",
    "data.reader.test=5",
    "data.reader.max_objects=1",
    "data.batch_size=8",
    "backbone.size=32",
    "backbone.grid=4",
    "backbone.dim=8",
    "trainer=cpu",
    "trainer.max_epochs=3",
    "trainer.log_every_n_steps=1",
    "metrics.val=[CIDEr]",
    "metrics.test=[BLEU]",
    "callbacks.attention=null",
    "callbacks.resume.every_n_steps=2",
    "+callbacks.killer._target_=faults.Killer",
]
EVERYTHING = [
    *("model=sat_hard", "model.d_embed=8", "model.d_hidden=8", "schedule=linear"),
    *("callbacks=averaged", "trainer.accumulate_grad_batches=2", "data.num_workers=2"),
]
TIMES = ("seconds", "train/captions per second")
"""Columns of `metrics.csv` that tell the time."""


def run(home, *arguments, **environment):
    """The command, in `home`; `faults.Killer` reads the environment."""
    return forked("run", home, *COMMAND, *arguments, **environment)


def the_folder(runs):
    (folder,) = runs.iterdir()
    return folder


def rows(folder, without=TIMES):
    return [{k: v for k, v in row.items() if k not in without} for row in rows_of(folder)]


def same(one, other, tolerance=0, without=TIMES):
    """All that a run leaves and that does not tell the time, to the bit or within a tolerance."""
    assert (one / "captions.jsonl").read_text() == (other / "captions.jsonl").read_text()
    wanted = [pytest.approx(row, rel=tolerance, abs=tolerance) for row in rows(other, without)]
    assert rows(one, without) == wanted
    for name in ("best", "last"):
        ours, theirs = (
            torch.load(folder / "checkpoints" / f"{name}.ckpt") for folder in (one, other)
        )
        assert ours["global_step"] == theirs["global_step"]
        for state in ("state_dict", "optimizer_states"):
            torch.testing.assert_close(ours[state], theirs[state], rtol=tolerance, atol=tolerance)


def test_a_run_that_was_killed_ends_as_if_it_had_not_been(tmp_path):
    """Before there is anything to go on with, inside the first epoch, while a checkpoint is
    written, in validation, by a signal that can be caught, and in the test.
    """
    settings = [
        *EVERYTHING,
        "metrics.test=[BLEU,METEOR]",
        "data.language=fr",
    ]  # whose METEOR is quick to start
    whole = run(tmp_path, *settings, "runs=whole")
    assert whole.returncode == 0, whole.stderr
    command = [*settings, "runs=killed", "resume=true"]
    for moment, name in (
        ("train:2", "SIGKILL"),
        ("save:2", "SIGKILL"),
        ("validation:1", "SIGKILL"),
        ("train:5", "SIGTERM"),
        ("test:1", "SIGKILL"),
    ):
        ended = run(tmp_path, *command, KILL=moment, KILL_WITH=name)
        if name == "SIGKILL":
            assert ended.returncode == -signal.SIGKILL, ended.stderr
        else:
            assert ended.returncode == 128 + getattr(signal, name), ended.stderr
            assert f"stopped by {name} after " in ended.stderr
        checkpoints = the_folder(tmp_path / "killed") / "checkpoints"
        for checkpoint in checkpoints.glob("*.ckpt"):
            torch.load(checkpoint, weights_only=True)  # whole
    ended = run(tmp_path, *command)
    assert ended.returncode == 0, ended.stderr
    assert (
        f"resuming from {Path('killed') / checkpoints.parent.name / 'checkpoints' / 'last.ckpt'}"
        in ended.stdout
    )
    same(the_folder(tmp_path / "whole"), the_folder(tmp_path / "killed"))
    kept = {path.name for path in checkpoints.iterdir()}
    assert kept == {"best.ckpt", "last.ckpt", "previous.ckpt"}


def test_a_run_that_computes_features_in_steps_is_resumed_to_the_bit(tmp_path):
    """With views that each epoch draws anew."""
    flickr8k(tmp_path / "data")
    settings = [*MODEL, *FROZEN, "data.cache_features=false", "data.views=2", "data.num_workers=0"]
    scenes = ("data.reader.", "backbone.", "data.batch_size")  # of drawn scenes
    base = [word for word in COMMAND if not word.startswith(scenes)]
    command = [*base, *settings, "data.batch_size=2"]

    def train(runs, **environment):
        return forked("run", tmp_path, *command, f"runs={runs}", "resume=true", **environment)

    assert train("whole").returncode == 0
    assert train("killed", KILL="train:4").returncode == -signal.SIGKILL
    ended = train("killed")
    assert ended.returncode == 0, ended.stderr
    assert "resuming from " in ended.stdout
    same(the_folder(tmp_path / "whole"), the_folder(tmp_path / "killed"))
    assert not (tmp_path / "cache" / "features").exists()


def test_a_run_whose_folder_is_renamed_ends_and_is_resumed_there(tmp_path):
    """A checkpoint is the first that would be written to where it was."""
    command = [*MODEL, "data.num_workers=0", "trainer.log_every_n_steps=50", "resume=true"]
    assert run(tmp_path, *command, "runs=whole").returncode == 0
    elsewhere = tmp_path / "runs" / "renamed"
    ended = run(tmp_path, *command, KILL="train:8", RENAME=str(elsewhere))
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "error: cannot write runs/shapes-" in ended.stderr
    assert the_folder(tmp_path / "runs") == elsewhere
    assert run(tmp_path, *command).returncode == 0
    same(the_folder(tmp_path / "whole"), elsewhere)


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(tmp_path):
    model = [*MODEL, "data.num_workers=0"]
    assert run(tmp_path, *model, "runs=whole").returncode == 0
    command = [*model, "runs=killed", "resume=true"]
    assert run(tmp_path, *command, KILL="train:8").returncode == -signal.SIGKILL
    folder = the_folder(tmp_path / "killed")
    last = folder / "checkpoints" / "last.ckpt"
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    last.write_bytes(content)

    ended = run(tmp_path, *command)
    assert ended.returncode == 0, ended.stderr
    assert f"checkpoint={last.relative_to(tmp_path)} is damaged" in ended.stdout + ended.stderr
    assert f"resuming from {last.relative_to(tmp_path).with_name('previous.ckpt')}" in ended.stdout
    assert last.with_suffix(".damaged").exists()
    same(the_folder(tmp_path / "whole"), folder)


def test_a_killed_worker_ends_the_run_with_a_sentence(tmp_path):
    settings = [*MODEL, "data.num_workers=2", "data.batch_size=2"]
    ended = run(tmp_path, *settings, KILL="train:5", KILL_WORKER="")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    (error,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "data.num_workers=0" in error


def test_a_loss_that_is_no_number_ends_the_run_and_is_not_saved(tmp_path):
    ended = run(tmp_path, *MODEL, "optimizer.lr=1e30")
    assert ended.returncode == 1
    assert "error: not finite after " in ended.stderr
    assert "lower optimizer.lr" in ended.stderr
    for path in the_folder(tmp_path / "runs").glob("checkpoints/*.ckpt"):
        assert all(tensor.isfinite().all() for tensor in torch.load(path)["state_dict"].values())


@pytest.mark.soak
def test_twenty_kills_at_random_moments(tmp_path):
    """Some fall into a step, some into a validation, some into the writing of a file."""
    longer = [*EVERYTHING, "trainer.max_epochs=120", "callbacks.early_stopping=null"]
    whole = run(tmp_path, *longer, "runs=whole")
    assert whole.returncode == 0, whole.stderr
    moments = random.Random(0)
    for kill in range(20):
        ended = run(
            tmp_path,
            *longer,
            "runs=killed",
            "resume=true",
            KILL=f"after:{moments.randint(500, 2500)}",
        )
        assert ended.returncode == -signal.SIGKILL, f"ended before kill {kill}"
    ended = run(tmp_path, *longer, "runs=killed", "resume=true")
    assert ended.returncode == 0, ended.stderr
    same(the_folder(tmp_path / "whole"), the_folder(tmp_path / "killed"))
