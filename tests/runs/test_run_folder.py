"""The folder of a run: made, locked, found again."""

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from test_check import config

from captioning.errors import CaptioningError, Stopped
from captioning.runs.earlier import earlier_run
from captioning.runs.folder import lock, new_folder, run_folder
from captioning.runs.record import begin

HOLDER = """
import os, sys, time
from filelock import FileLock
held = FileLock(sys.argv[1])
held.acquire()
read, write = os.pipe()
if os.fork() == 0:  # as a data worker, which outlives its killed parent by seconds
    os.close(1)
    os.write(write, b".")
    time.sleep(20)
    os._exit(0)
os.read(read, 1)  # it has begun, and so has let go of the lock that it was forked with
print("held", flush=True)
time.sleep(20)
"""


@contextmanager
def held_by_another(folder: Path) -> Iterator[None]:
    command = [sys.executable, "-S", "-c", f"import sys; sys.path = {sys.path}\n{HOLDER}", str(folder / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.kill()


def test_a_folder_is_one_runs_alone(tmp_path: Path) -> None:
    with held_by_another(tmp_path):
        refused = pytest.raises(CaptioningError, match="is the folder of a run that is under way")
        with refused, lock(tmp_path):
            pass
    with lock(tmp_path), pytest.raises(CaptioningError, match="under way"), lock(tmp_path):  # it was killed
        pass
    assert not list(tmp_path.iterdir())


def test_other_ranks_leave_it_to_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock(tmp_path):
        monkeypatch.setenv("RANK", "1")
        with lock(tmp_path):
            pass


@pytest.mark.skipif(not Path("/sys").is_dir(), reason="a folder that nobody can write to")
def test_a_read_only_folder_is_named() -> None:
    refused = pytest.raises(CaptioningError, match=r"cannot write to /sys: .* new run with resume=false and runs=")
    with refused, lock(Path("/sys")):
        pass


SETTINGS = ("optimizer.lr=1e-5", "name='1e-5'", "+data.note='2020-01-01'", "+data.more='\"no\"'", "resume=true")
THEN = {"configuration": "c", "code": "old", "data": "d", "backbone": "b"}
NOW = THEN | {"configuration": "of another version", "code": "new"}


@pytest.fixture
def earlier(elsewhere: Path) -> Path:
    now = config(*SETTINGS)
    folder = new_folder(now, run_folder(now))
    begin(folder, THEN, "32-true")
    return folder


def test_settings_come_back_as_they_were_written(earlier: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert earlier_run(config(*SETTINGS), THEN) == earlier
    with caplog.at_level(logging.WARNING):
        assert earlier_run(config(*SETTINGS, "runs=./runs", "cache=elsewhere"), NOW) == earlier
    assert "code or backbone have changed" in caplog.text
    with pytest.raises(CaptioningError, match=r"but came with data\.note=2 \(it has 2020-01-01\)\. Give"):
        earlier_run(config(*SETTINGS, "data.note='2'"), NOW)


@pytest.mark.parametrize(
    ("name", "advice"), [("run.json", "move its folder away, and the run begins anew"), ("config.yaml", "from a copy")]
)
def test_a_damaged_file_is_named(earlier: Path, name: str, advice: str) -> None:
    (earlier / name).write_bytes(b"\xff")
    with pytest.raises(CaptioningError, match=rf"{name} cannot be read or is damaged \(.*0xff.*\): .*{advice}"):
        earlier_run(config(*SETTINGS), NOW)


def test_a_folder_is_never_an_earlier_ones(earlier: Path) -> None:
    now = config(*SETTINGS)
    again = new_folder(now, run_folder(now))
    assert again == earlier.with_name(f"{earlier.name}-2")
    assert now.folder == str(again)
    assert OmegaConf.load(again / "config.yaml").folder == str(again)
    assert "${" not in (again / "config.yaml").read_text()


def test_a_folder_appears_with_its_record_or_not_at_all(elsewhere: Path) -> None:
    def stop() -> None:
        raise Stopped("stopped", signal.SIGINT)

    OmegaConf.register_new_resolver("stop", stop, replace=True)
    now = config(*SETTINGS)
    base = run_folder(now)
    with pytest.raises(Stopped):
        new_folder(config(*SETTINGS, "+data.stops=${stop:}"), base, lambda folder: begin(folder, THEN, "32-true"))
    assert not list(base.parent.iterdir())
    base.mkdir()  # as earlier versions have left it
    assert new_folder(now, base, lambda folder: begin(folder, THEN, "32-true")) == base
    assert sorted(path.name for path in base.iterdir()) == ["config.yaml", "run.json"]
    assert earlier_run(config(*SETTINGS), THEN) == base


def test_each_of_several_at_once_has_its_own(elsewhere: Path) -> None:
    configs = [config(*SETTINGS) for _ in range(8)]
    base = run_folder(configs[0])
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda each: new_folder(each, base), configs))
    assert len(set(folders)) == 8
    assert [OmegaConf.load(folder / "config.yaml").folder for folder in folders] == list(map(str, folders))
