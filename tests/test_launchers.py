"""Runs of two processes, started by Lightning and by torchrun: they leave what one process leaves,
and die together.
"""

import shutil
import signal
from contextlib import ExitStack

import pytest
import yaml
from json_files import read_json
from lightning.fabric.plugins.environments.lightning import find_free_network_port
from processes import LIMIT, forked, in_session, python, run, started, wait
from refusals import refuses
from support import MODEL, SHAPES, captions_of, checked, composed, contents
from test_resume import COMMAND, same, the_folder

OVERRIDES = [*SHAPES, "model.dropout=0"]
TWO = [*OVERRIDES, "+trainer.strategy=ddp", "trainer.devices=2", "data.batch_size=3"]
FAULT = ["+callbacks.fault._target_=faults.Fault", "name=fault", "test=false"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The home of a run of one process, with batches as large as those of two together."""
    home = tmp_path_factory.mktemp("home")
    run(home, *OVERRIDES, "data.batch_size=6")
    return home


def torchrun(home, *arguments):
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ended = python("-m", *launcher, "-m", "captioning.run", *arguments, cwd=home)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def beside(home, *arguments):
    """Two processes with the variables that torchrun gives, in a quarter of its time."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_network_port())}
    place |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    place |= {"TORCHELASTIC_RUN_ID": "0"}
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                started("run", home, *arguments, RANK=rank, LOCAL_RANK=rank, **place)
            )
            for rank in "01"
        ]
        for process, (_, stderr) in both:
            process.join(LIMIT)
            assert process.exitcode == 0, stderr.read_text()
        return "".join(stdout.read_text() for _, (stdout, _) in both)


@pytest.mark.parametrize(
    "launch",
    [
        lambda home, *arguments: run(home, *arguments).stdout,
        beside,
        pytest.param(torchrun, marks=pytest.mark.soak),
    ],
    ids=["lightning", "variables", "torchrun"],
)
def test_two_processes_leave_what_one_leaves(whole, tmp_path, launch):
    """Test images are five; the folder's name is taken already, which rank 1 need not know."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    before = contents(tmp_path / "runs")
    said = launch(tmp_path, *TWO, "callbacks.attention.images=4")
    assert said.count("images: train 24") == said.count("test score") == 1
    one, folder = sorted((tmp_path / "runs").iterdir())
    after = contents(tmp_path / "runs")
    assert ({name: after[name] for name in before} == before) is True
    panels = {f"attention/200000{i}.{kind}" for i in range(4) for kind in ("png", "pdf")}
    assert contents(folder).keys() == contents(one).keys() | panels
    assert yaml.safe_load((folder / "config.yaml").read_text())["folder"] == f"runs/{folder.name}"
    assert captions_of(folder) == captions_of(one)
    assert [line["image_id"] for line in captions_of(one)] == list(range(2000000, 2000005))
    record, expected = (read_json(f / "scores.json") for f in (folder, one))
    assert record["provenance"]["processes"] == 2
    assert record["scores"] == pytest.approx(expected["scores"], rel=1e-3)


def test_processes_that_know_nothing_of_each_other_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refuses(r"2 processes were started, .* trainer\.devices=1"):
        checked(composed(*OVERRIDES))


def test_processes_that_do_not_agree_train_nothing(tmp_path):
    """As where a job of a sweep has failed in one of them alone, and they would now mix two
    runs.
    """
    ended = forked("run", tmp_path, *TWO, "seed='${oc.decode:${oc.env:LOCAL_RANK,0}}'")
    assert ended.returncode == 1
    assert "error: the processes of this run differ in seed" in ended.stderr
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.parametrize(
    "rank, kind, message",
    [
        pytest.param(0, "error", "an error of one process", marks=pytest.mark.soak),
        (1, "kill", "terminated with code -9"),
    ],
)
def test_all_processes_end_with_the_first_that_dies(tmp_path, rank, kind, message):
    """And the message is there. With Lightning: torchrun ends the others itself."""
    fault = [f"+callbacks.fault.rank={rank}", f"+callbacks.fault.kind={kind}"]
    with started("run", tmp_path, *TWO, *FAULT, *fault) as (process, (_, stderr)):
        process.join(LIMIT)
        assert process.exitcode
        wait(lambda: not in_session(process.pid))
        assert message in stderr.read_text()


@pytest.mark.soak
def test_two_processes_that_were_stopped_end_as_if_they_had_not_been(tmp_path):
    """Both killed in an epoch, then stopped; the command to continue is told once, as given."""
    settings = [*COMMAND, *MODEL, "+trainer.strategy=ddp", "trainer.devices=2", "resume=true"]
    settings += ["data.batch_size=4", "data.num_workers=0", "trainer.max_epochs=2"]

    def train(runs, **environment):
        return forked("run", tmp_path, *settings, f"runs={runs}", **environment)

    assert train("whole").returncode == 0
    assert train("stopped", KILL="train:5").returncode == -signal.SIGKILL
    ended = train("stopped", KILL="train:3", KILL_WITH="SIGTERM")
    assert ended.returncode == 128 + signal.SIGTERM
    (told,) = [line for line in ended.stderr.splitlines() if line.startswith("To continue: ")]
    assert "hydra." not in told
    ended = train("stopped")
    assert ended.returncode == 0
    assert "resuming from " in ended.stdout
    same(the_folder(tmp_path / "whole"), the_folder(tmp_path / "stopped"))
