"""Sweeps that are given again: each a process of its own in an empty directory."""

import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import joblib
import pytest
import yaml
from joblib.externals.loky.process_executor import TerminatedWorkerError
from json_files import read_json
from processes import forked, in_session, started, wait
from support import MODEL, contents
from test_resume import COMMAND, run, same

from captioning.config.explain import explain
from captioning.report.page import reproducing_command
from captioning.report.runs import find_runs
from captioning.report.systems import group

SWEEP = [*MODEL, "data.num_workers=0", "trainer.max_epochs=2"]
PROCESSES = ["hydra/launcher=processes"]


def sweep(home, *arguments, **environment):
    return run(home, *SWEEP, *arguments, "-m", **environment)


def folders(runs):
    found = [path.parent for path in runs.glob("*/run.json")]
    return {folder.name.removeprefix("shapes-spatial_transformer-"): folder for folder in found}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Seeds 1 and 2 as they should be; and the same sweep, killed in the last epoch of seed 2, then
    moved elsewhere.
    """
    home = tmp_path_factory.mktemp("home")
    threads = str(max(joblib.cpu_count() // 2, 1))  # the share of one of two processes
    whole = sweep(home, "seed=1,2", "runs=whole", OMP_NUM_THREADS=threads)
    assert whole.returncode == 0, whole.stderr
    killed = sweep(home, "seed=2", KILL="train:18", OMP_NUM_THREADS=threads)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    shutil.move(home / "runs", home / "moved")
    first = folders(home / "whole")["seed1"]
    shutil.copytree(first, home / "moved" / first.name)
    return home


def test_the_same_sweep_again_skips_what_is_finished_and_goes_on_with_what_is_not(home):
    before = contents(home / "moved" / "shapes-spatial_transformer-seed1")
    free = ["data.num_workers=1", "metrics.timeout=99"]  # which change no result
    again = sweep(home, "seed=1,2", "runs=moved", *free)
    assert again.returncode == 0, again.stderr
    moved = "moved/shapes-spatial_transformer-seed"
    assert f"this run is finished: {moved}1;" in again.stdout
    assert f"resuming from {moved}2/checkpoints/last.ckpt" in again.stdout
    assert again.stdout.count("test score") == 2
    found = folders(home / "moved")
    assert set(found) == {"seed1", "seed2"}
    assert (contents(found["seed1"]) == before) is True
    for seed, folder in folders(home / "whole").items():
        same(folder, found[seed])
        assert (found[seed] / "run.json").read_text() == (folder / "run.json").read_text()


MINE = """# @package _global_
defaults: [/experiment/demo]
name: mine
hydra: {mode: MULTIRUN, sweeper: {params: {seed: "3"}}}
"""


def test_the_command_on_the_page_of_a_report_is_that_of_the_runs(home, tmp_path):
    """Of three sweeps: seeds, rates, and an experiment from elsewhere."""
    shutil.copytree(home / "whole", tmp_path / "whole")
    (tmp_path / "my conf" / "experiment").mkdir(parents=True)
    (tmp_path / "my conf" / "experiment" / "mine.yaml").write_text(MINE)
    short = ["trainer.limit_train_batches=1", "trainer.check_val_every_n_epoch=1"]
    short += ["trainer.max_epochs=1"]
    systems = ["model=show_tell", "model.size=small", "seed=1"]
    rest = ["optimizer.lr=0.002,0.001", "name=two words", "runs=runs"]
    own = ["experiment=mine", systems[1], *short, "runs=runs", "--config-dir", "my conf"]
    assert run(tmp_path, *short, *systems, *rest, "-m").returncode == 0
    assert run(tmp_path, *own).returncode == 0
    found = group(find_runs(tmp_path)[0])
    assert len(found) == 4
    for system in found:
        program, name, *arguments = shlex.split(reproducing_command(system))
        assert (program, name) == ("captioning", "run")
        again = forked("run", tmp_path, *arguments, "resume=true")
        assert again.stdout.count("this run is finished") == len(system.runs), again.stderr


def test_anything_else_gets_a_folder_of_its_own(home, tmp_path):
    """Of other settings; nothing that was there is touched."""
    shutil.copytree(
        home / "whole", tmp_path / "runs", ignore=shutil.ignore_patterns("multirun.yaml")
    )
    shutil.copytree(home / "cache", tmp_path / "cache")
    before = contents(tmp_path / "runs")
    ended = sweep(tmp_path, "seed=1", "optimizer.lr=0.002,0.001")
    assert ended.returncode == 0
    table = ended.stdout[ended.stdout.index("\njobs by val/CIDEr\n") :]
    row = r"   [12] +[\d.]+  optimizer\.lr=0\.00[12]  runs/\S+\n"
    assert re.fullmatch(rf"\njobs by val/CIDEr\n({row}){{2}}next: .* runs=runs\n", table)
    for shared in ("images: ", "parameters: "):  # one line for both jobs
        assert ended.stdout.count(f"\n{shared}") == 1
    found = folders(tmp_path / "runs")
    swept = {f"seed1-optimizer.lr={rate}": rate for rate in (0.002, 0.001)}
    assert set(found) == {"seed1", *swept, "seed2"}
    for name, rate in swept.items():
        assert yaml.safe_load((found[name] / "config.yaml").read_text())["optimizer"]["lr"] == rate
    after = contents(tmp_path / "runs")
    assert ({name: after[name] for name in before} == before) is True


def test_a_ranking_is_that_of_this_sweep(tmp_path):
    """Not of an earlier one of the same command, whose experiment has been edited since."""
    file = tmp_path / "conf" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    own = ["--config-dir", "conf", "experiment=mine", "trainer.max_epochs=1"]
    own += ["trainer.limit_train_batches=1", "trainer.check_val_every_n_epoch=1", "test=false"]
    for rate in ("1e-3", "1e-2"):
        file.write_text(f"# @package _global_\nname: mine\noptimizer: {{lr: {rate}}}\n")
        ended = sweep(tmp_path, *own, "seed=1,2")
        assert ended.returncode == 0, ended.stderr
        assert " seed=1,2\n" in ended.stdout.partition("\njobs by val/CIDEr\n")[2]
    assert len(folders(tmp_path / "runs")) == 4
    assert not list(tmp_path.glob("runs/.*"))


def test_several_processes_do_what_one_does(home, tmp_path):
    """With their share of the cores and of a GPU; a job that fails does not hurt the others."""
    program = tmp_path / "bin" / "nvidia-cuda-mps-control"
    said = 'echo "$CUDA_MPS_PIPE_DIRECTORY" "${1-$(cat)}"'
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{said} >>{shlex.quote(str(tmp_path / 'mps'))}\n")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    on_any = "trainer.accelerator=auto"
    ended = sweep(tmp_path, "seed=-1,1,2", on_any, *PROCESSES, PATH=path)
    (place, begun), (same_place, quit) = map(str.split, (tmp_path / "mps").read_text().splitlines())
    assert (begun, quit, same_place) == ("-d", "quit", place)
    assert not Path(place).exists()
    assert ended.returncode == 1
    reason = "seed=-1: must be greater than or equal to 0"
    said = [line for line in ended.stderr.splitlines() if not line.startswith("Drawing shapes")]
    hydras = [line for line in said if line.startswith("Error executing job with overrides: ")]
    assert said == [f"job 0 failed: {reason}", *hydras, f"error: {reason}"]
    assert {f"[{job}] job {job}: seed={seed}" for job, seed in enumerate((-1, 1, 2))} <= set(
        ended.stdout.splitlines()
    )
    table = ended.stdout.partition("\njobs by val/CIDEr\n")[2]
    assert re.match(r"   1 +[\d.]+ ± [\d.]+  seed=1,2\nnext: ", table)
    found = folders(tmp_path / "runs")
    assert set(found) == {"seed1", "seed2"}
    for seed, folder in folders(home / "whole").items():
        same(folder, found[seed])


def test_an_error_that_all_jobs_share_ends_a_sweep_once(tmp_path):
    ended = forked("run", tmp_path, "experiment=table1", "data.root=nowhere")
    assert (ended.returncode, ended.stdout) == (1, "")
    (error,) = ended.stderr.splitlines()
    assert "data.root=nowhere" in error
    assert "captioning download data=coco" in error


def test_jobs_that_fail_alike_name_the_first(tmp_path):
    """Of a device, which only a job looks for."""
    ended = forked("run", tmp_path, "-m", "seed=1,2", "trainer=gpu")
    assert ended.returncode == 1
    first, second, *_ = ended.stderr.splitlines()
    assert first.startswith("job 0 failed: trainer.accelerator=gpu")
    assert second == "job 1 failed: as job 0"


def test_a_process_that_was_killed_is_explained():
    said = explain(TerminatedWorkerError())
    assert said.startswith("a process of the sweep was killed")


@pytest.mark.soak
def test_no_process_outlives_the_sweep(tmp_path):
    arguments = (*COMMAND, *SWEEP, *PROCESSES, "seed=1,2,3,4", "trainer.max_epochs=9999", "-m")
    with started("run", tmp_path, *arguments) as (sweeping, _):
        wait(lambda: len(list(tmp_path.glob("runs/*/metrics.csv"))) == 2)
        sweeping.kill()
    wait(lambda: not in_session(sweeping.pid))
    assert set(folders(tmp_path / "runs")) == {"seed1", "seed2"}
    assert len(list(tmp_path.glob("runs/*/checkpoints/last.ckpt"))) == 2  # they could still save


def test_a_signal_ends_the_whole_sweep(tmp_path):
    stopped = sweep(tmp_path, "seed=1,2", KILL="train:5", KILL_WITH="SIGTERM")
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert "stopped by SIGTERM after " in stopped.stderr
    assert "resume=true" not in stopped.stderr  # a sweep goes on without
    assert set(folders(tmp_path / "runs")) == {"seed1"}


def test_a_search_that_was_killed_goes_on_with_its_trials(tmp_path):
    search = ["hydra/sweeper=search", "hydra.sweeper.n_trials=2", "test=false"]
    search += ["hydra.sweeper.sampler.n_startup_trials=1"]  # so that the first one's score counts
    rates = "optimizer.lr=tag(log,interval(1e-4,1e-2))"
    assert sweep(tmp_path, *search, rates, KILL="train:18").returncode == -signal.SIGKILL
    (begun,) = folders(tmp_path / "runs")
    again = sweep(tmp_path, *search, rates)
    assert again.returncode == 0, again.stderr
    assert f"resuming from runs/shapes-spatial_transformer-{begun}/" in again.stdout
    found = folders(tmp_path / "runs")
    assert begun in found
    assert len(found) == 2
    best = [read_json(folder / "run.json")["result"]["best"] for folder in found.values()]
    results = yaml.safe_load((tmp_path / "runs" / "optimization_results.yaml").read_text())
    assert results["best_value"] == max(best) != min(best)
