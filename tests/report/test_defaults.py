"""Settings that an earlier run was recorded without, since its code did not have them."""

import sys
from pathlib import Path

import pytest
from json_files import read_json
from written import systems_of, write_run

from captioning.report.compare.__main__ import main
from captioning.runs.folders import record
from captioning.runs.folders.record import RunSettings

SCHEDULE = {"_target_": "captioning.training.schedule.warmup_decay", "warmup_steps": 5}


class Newer(RunSettings):
    """The settings of a later version."""

    shuffled: bool = True


@pytest.fixture(autouse=True)
def _is_newer(elsewhere, monkeypatch):
    monkeypatch.setattr(record, "RunSettings", Newer)


@pytest.mark.parametrize(
    "recorded, differs",
    [
        ({"shuffled": True}, False),
        ({"shuffled": False}, True),
        ({"schedule": {"final": 0}}, False),  # 0.0 in the class
        ({"schedule": {"final": 0.1}}, True),
        ({"schedule": {"power": 2}}, True),  # which the class does not have
        ({"backbone": {"depth": 3}}, True),  # nor what is not ours
    ],
)
def test_an_absent_setting_had_its_default(recorded, differs, printed):
    parts = {"schedule": SCHEDULE, "backbone": {"_target_": "nowhere.Net", "width": 3}}
    newer = {name: {**part, **recorded.get(name, {})} for name, part in parts.items()}
    one = write_run(Path("runs"), "own", 1, ciders=(1.0, 2.0, 3.0), **parts)
    two = write_run(Path("runs"), "own", 2, ciders=(1.0, 2.0, 3.0), **recorded | newer)
    assert len(systems_of(Path("runs"))) == 1 + differs
    printed(main, str(one), str(two), "metrics=[]", "images=null")
    found = read_json(Path("compare/compare.json"))["settings"].keys()
    assert bool(found - {"seed"}) == differs


def test_parts_that_lack_nothing_are_not_imported(elsewhere, monkeypatch):
    """Lightning's take seconds, of which a report has no use."""
    for name in ("one", "other"):
        Path(f"part_{name}.py").write_text("def part(size=3): ...\n")
    monkeypatch.syspath_prepend(elsewhere)
    settings = {f"{name}._target_": f"part_{name}.part" for name in ("one", "other")}
    assert record.completed_settings(settings, {"one.size": None})["one.size"] == 3
    assert "part_one" in sys.modules
    assert "part_other" not in sys.modules
