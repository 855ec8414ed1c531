"""Runs of two processes, started by Lightning and by torchrun: they leave what one process leaves,
and die together.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import processes
import pytest
import yaml
from processes import ENVIRONMENT, LIMIT
from support import SHAPES, checked, composed

from captioning.errors import CaptioningError

OVERRIDES = [*SHAPES, "model.dropout=0"]
LAUNCHERS = {
    "lightning": [sys.executable],
    "torchrun": [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
    ],
}
TWO = ["+trainer.strategy=ddp", "trainer.devices=2", "data.batch_size=3"]
DEATHS = [(0, "error", "an error of one process"), (1, "kill", "terminated with code -9")]
"""Of processes that Lightning has started: torchrun ends the others itself."""


def dying(rank: int, kind: str) -> list[str]:
    fault = {"_target_": "faults.Fault", "rank": rank, "kind": kind}
    return [
        "name=fault",
        "test=false",
        *(f"+callbacks.fault.{name}={value}" for name, value in fault.items()),
    ]


COMMANDS = {
    **{f"{rank} dies": ("lightning", *TWO, *dying(rank, kind)) for rank, kind, _ in DEATHS},
    **{
        f"{launcher} lives": (launcher, *TWO, "callbacks.attention.images=4")
        for launcher in LAUNCHERS
    },
    "at odds": ("lightning", *TWO, "seed='${oc.decode:${oc.env:LOCAL_RANK,0}}'"),
}
"""Three at a time, as those that die mostly wait; these come first."""
Ended = Callable[[str], tuple[Path, CompletedProcess[str]]]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the run of one process, whose batches are as large as those of two together."""
    folder = tmp_path_factory.mktemp("one") / "home"
    folder.mkdir()
    processes.run(folder, *OVERRIDES, "data.batch_size=6")
    return folder


@pytest.fixture(scope="module")
def ended(home: Path) -> Iterator[Ended]:
    """Gives the folder of a command, which was a copy of `home`, and how it has ended."""

    def launch(name: str) -> CompletedProcess[str]:
        launcher, *arguments = COMMANDS[name]
        command = [*LAUNCHERS[launcher], "-m", "captioning.run", *OVERRIDES, *arguments]
        folder = shutil.copytree(home, home.with_name(name))
        # returns when the last process has ended that holds the ends of the pipes
        return subprocess.run(
            command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT
        )

    with ThreadPoolExecutor(3) as pool:
        found: dict[str, Future[CompletedProcess[str]]] = {
            name: pool.submit(launch, name) for name in COMMANDS
        }
        yield lambda name: (home.with_name(name), found[name].result())


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_leave_what_one_leaves(home: Path, ended: Ended, launcher: str) -> None:
    """Test images are five; the folder's name is taken already, which rank 1 need not know."""
    there, ran = ended(f"{launcher} lives")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("images: train 24") == ran.stdout.count("test score") == 1
    one, folder = sorted((there / "runs").iterdir())
    alone = home / "runs" / one.name
    assert {name: (one / name).read_bytes() for name in files(one)} == {
        name: (alone / name).read_bytes() for name in files(alone)
    }
    panels = {f"attention/200000{i}.{kind}" for i in range(4) for kind in ("png", "pdf")}
    assert files(folder) == files(one) | panels
    assert yaml.safe_load((folder / "config.yaml").read_text())["folder"] == f"runs/{folder.name}"
    lines = [
        [json.loads(line) for line in (f / "captions.jsonl").read_text().splitlines()]
        for f in (folder, one)
    ]
    assert lines[0] == lines[1]
    assert [line["image_id"] for line in lines[0]] == list(range(2000000, 2000005))
    record, expected = (json.loads((f / "scores.json").read_text()) for f in (folder, one))
    assert record["provenance"]["processes"] == 2
    assert record["scores"] == pytest.approx(expected["scores"], rel=1e-3)


def test_processes_that_know_nothing_of_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(CaptioningError, match=r"2 processes were started, .* trainer\.devices=1"):
        checked(composed(*OVERRIDES))


def test_processes_that_do_not_agree_train_nothing(home: Path, ended: Ended) -> None:
    """As where a job of a sweep has failed in one of them alone, and they would now mix two
    runs.
    """
    there, ran = ended("at odds")
    assert ran.returncode == 1
    assert "error: the processes of this run differ in seed" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert {path.name for path in there.rglob("*.ckpt")} == {
        path.name for path in home.rglob("*.ckpt")
    }


@pytest.mark.parametrize(("rank", "kind", "message"), DEATHS)
def test_all_processes_end_with_the_first_that_dies(
    ended: Ended, rank: int, kind: str, message: str
) -> None:
    """And the message is there."""
    _, ran = ended(f"{rank} dies")
    assert ran.returncode != 0
    assert message in ran.stderr
