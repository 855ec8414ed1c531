"""The list of commands that is run to its end over interruptions."""

import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "experiments" / "run_all.py"


def start(path, *more):
    call = [sys.executable, str(SCRIPT), str(path), *more]
    return subprocess.Popen(call, stdout=subprocess.PIPE, text=True, cwd=SCRIPT.parent)


def finish(process):
    output, _ = process.communicate(timeout=60)
    return process.returncode, output.splitlines()


def test_every_command_runs_once_and_a_failed_one_again(tmp_path):
    written, ready = tmp_path / "written", tmp_path / "ready"
    path = tmp_path / "list"
    path.write_text(
        f"# a comment\n\necho one >> '{written}'\ntest -e '{ready}'\necho three >> '{written}'\n"
    )
    status, output = finish(start(path))
    assert status == 1
    assert output[-1].startswith("echo three")  # the failure before it has not stopped it
    assert written.read_text().split() == ["one", "three"]
    _, states = finish(start(path, "--state"))
    assert [state.split()[0] for state in states] == ["done", "failed", "done"]

    ready.touch()
    status, output = finish(start(path))
    assert (status, output) == (0, [f"test -e '{ready}'"])
    assert written.read_text().split() == ["one", "three"]


def test_two_processes_share_a_list(tmp_path):
    path, go = tmp_path / "list", tmp_path / "go"
    wait = f"touch '{tmp_path}/begun'; while [ ! -e '{go}' ]; do sleep 0.05; done"
    path.write_text(f"{wait}\ntouch '{tmp_path}/second'\n")
    first = start(path)
    while not (tmp_path / "begun").exists():
        time.sleep(0.05)
    _, states = finish(start(path, "--state"))
    assert [state.split()[0] for state in states] == ["running", "waiting"]
    assert finish(start(path)) == (0, [f"touch '{tmp_path}/second'"])
    go.touch()
    assert finish(first) == (0, [wait])
