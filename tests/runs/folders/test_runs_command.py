"""The list of runs, of folders that real runs and hands have written."""

import json

from processes import forked, python
from report.written import write_run
from test_run_folder import begun, held_by_another

from captioning.runs.folders.record import Record, Result


def listed(home, *arguments):
    ended = forked("runs.__main__", home, *arguments, "as_json=true")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_runs_are_listed_with_their_states(elsewhere, shapes_run):
    unfinished, written = begun(76), begun(4)
    untested = begun(100)
    record = Record.of(untested)
    record.result = Result(best=0.5)
    record.write(untested)
    (elsewhere / "broken").mkdir()
    (elsewhere / "broken" / "config.yaml").write_text("[")
    with held_by_another(written):
        ended = forked("runs.__main__", elsewhere)
        runs = listed(elsewhere)
    assert ended.returncode == 0
    assert ended.stdout.count("\n") == 2 + 3
    assert "| 76 of 100" in ended.stdout
    found = {run["folder"]: (run["done"], run["steps"], run["best"], run["state"]) for run in runs}
    assert found == {
        str(unfinished): (76, 100, None, "unfinished"),
        str(written): (4, 100, None, "being written"),
        str(untested): (100, 100, 0.5, "untested"),
    }
    several = forked("runs.__main__", elsewhere, "runs", ".", "as_json=true")
    assert len(json.loads(several.stdout)) == 6
    assert "broken/config.yaml" in several.stderr

    (run,) = listed(shapes_run.home)
    assert (run["folder"], run["state"]) == (
        str(shapes_run.folder.relative_to(shapes_run.home)),
        "finished",
    )
    assert run["done"] == run["steps"]


def test_a_folder_without_runs_and_none(elsewhere):
    (elsewhere / "empty").mkdir()
    said = python("-m", "captioning", "runs", "empty", "--json").stdout
    assert json.loads(said) == []
    refused = forked("runs.__main__", elsewhere, "nowhere")
    assert refused.returncode == 1
    assert "folders=nowhere" in refused.stderr


def test_a_folder_may_be_called_anything(elsewhere):
    write_run(elsewhere / "a=b [1]", "sat_soft", 3)
    (run,) = listed(elsewhere, "a=b [1]")
    assert (run["seed"], run["state"], run["best"]) == (3, "finished", None)
