"""Runs of two processes, started by Lightning and by torchrun: they leave what one process leaves, and die together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import processes
import pytest
import yaml
from processes import PACKAGE
from support import SHAPES

SETTINGS = [*SHAPES, "model.dropout=0"]
LAUNCHERS = {
    "lightning": [sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
}
TWO = ["+trainer.strategy=ddp", "trainer.devices=2"]


def run(launcher: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Returns when the last process has ended that holds the ends of the pipes."""
    return subprocess.run(
        [*LAUNCHERS[launcher], "-m", "captioning.run", *SETTINGS, *arguments],
        cwd=folder,
        env=os.environ
        | {
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": os.pathsep.join((PACKAGE, str(Path(__file__).parent))),
        },
        capture_output=True,
        text=True,
        timeout=1000,
    )


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the run of one process, whose batches are as large as those of two together."""
    folder = tmp_path_factory.mktemp("home")
    processes.run(folder, *SETTINGS, "data.batch_size=6")
    return folder


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_leave_what_one_leaves(home: Path, launcher: str) -> None:
    """Test images are five; the folder's name is taken already, which rank 1 need not know."""
    one = home / "runs" / "shapes-spatial_transformer-seed1"
    before = {path.name for path in one.parent.iterdir()}
    contents = {name: (one / name).read_bytes() for name in files(one)}
    ended = run(launcher, home, *TWO, "data.batch_size=3", "callbacks.attention.images=4")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("images: train 24") == ended.stdout.count("test score") == 1
    (new,) = {path.name for path in one.parent.iterdir()} - before
    assert {name: (one / name).read_bytes() for name in files(one)} == contents
    folder = one.parent / new
    panels = {f"attention/200000{i}.{kind}" for i in range(4) for kind in ("png", "pdf")}
    assert files(folder) == set(contents) | panels
    assert yaml.safe_load((folder / "config.yaml").read_text())["folder"] == f"runs/{new}"
    lines = [[json.loads(line) for line in (f / "captions.jsonl").read_text().splitlines()] for f in (folder, one)]
    assert lines[0] == lines[1]
    assert [line["image_id"] for line in lines[0]] == list(range(2000000, 2000005))
    record, expected = (json.loads((f / "scores.json").read_text()) for f in (folder, one))
    assert record["provenance"]["processes"] == 2
    assert record["scores"] == pytest.approx(expected["scores"], rel=1e-3)


@pytest.mark.parametrize(
    ("launcher", "rank", "kind", "message"),
    [
        ("lightning", 1, "kill", "terminated with code -9"),
        ("lightning", 0, "error", "an error of one process"),
        ("torchrun", 1, "error", "an error of one process"),
    ],
)
def test_all_processes_end_with_the_first_that_dies(
    home: Path, launcher: str, rank: int, kind: str, message: str
) -> None:
    """And the message is there."""
    fault = {"_target_": "faults.Fault", "rank": rank, "kind": kind}
    settings = [f"+callbacks.fault.{name}={value}" for name, value in fault.items()]
    ended = run(launcher, home, *TWO, "data.batch_size=3", "name=fault", "test=false", *settings)
    assert ended.returncode != 0
    assert message in ended.stderr


def test_processes_that_know_nothing_of_each_other_are_refused(home: Path) -> None:
    before = files(home)
    ended = run("torchrun", home)
    assert ended.returncode == 1
    assert "error: 2 processes were started, and with trainer.devices=1 each would train on its own" in ended.stderr
    assert files(home) == before


def test_processes_that_do_not_agree_train_nothing(tmp_path: Path) -> None:
    """As where a job of a sweep has failed in one of them alone, and they would now mix two runs."""
    ended = run("lightning", tmp_path, *TWO, "seed='${oc.decode:${oc.env:LOCAL_RANK,0}}'")
    assert ended.returncode == 1
    assert "error: the processes of this run differ in seed" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list(tmp_path.rglob("*.ckpt"))
