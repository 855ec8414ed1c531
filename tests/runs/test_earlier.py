"""Runs of an earlier version are gone on with, whatever settings were added since.

`earlier` has two runs of commit 5dec4d50: seed 1 has finished, seed 2 was killed after two of its
nine steps.
"""

import shutil
from pathlib import Path

import pytest
import torch
import yaml
from json_files import read_json
from omegaconf import OmegaConf
from processes import run
from support import composed, contents
from test_resume import same

from captioning import evaluate
from captioning.config.schemas.run import RunDataSettings, RunSettings
from captioning.runs.folders import record
from captioning.runs.folders.record import changed_settings
from captioning.runs.settings import each_setting, in_some_folder, read_settings

EARLIER = Path(__file__).with_name("earlier")
FINISHED, KILLED = (EARLIER / f"earlier-spatial_transformer-seed{seed}" for seed in (1, 2))
COMMAND = yaml.safe_load((KILLED / "config.yaml").read_text())["overrides"]


def test_they_are_found_and_end_as_if_they_had_not_been_killed(tmp_path):
    (tmp_path / "whole").mkdir()
    run(tmp_path / "whole", *COMMAND)
    whole = tmp_path / "whole" / "runs" / KILLED.name
    shutil.copytree(EARLIER, tmp_path / "runs")
    shutil.copytree(EARLIER, tmp_path / "sweep")
    single = run(tmp_path, *COMMAND, "resume=true")
    assert f"resuming from runs/{KILLED.name}/checkpoints/last.ckpt" in single.stdout
    finished = contents(tmp_path / "sweep" / FINISHED.name)
    sweep = run(tmp_path, "-m", *COMMAND[:-1], "seed=1,2", "runs=sweep")
    assert f"this run is finished: sweep/{FINISHED.name}" in sweep.stdout
    assert contents(tmp_path / "sweep" / FINISHED.name) == finished
    for runs in ("runs", "sweep"):
        names = {path.parent.name for path in (tmp_path / runs).glob("*/run.json")}
        assert names == {FINISHED.name, KILLED.name}
        # its first steps were made on another kind of CPU, whose sums differ in their last bits
        same(whole, tmp_path / runs / KILLED.name, tolerance=1e-3)
        before, now = (
            read_json(path / KILLED.name / "run.json") for path in (EARLIER, tmp_path / runs)
        )
        assert {**now, "done": 2, "result": None} == before
    # what is written now has all that was written then
    for file in ("config.yaml", "checkpoints/last.ckpt"):
        before, now = (stored(path / file) for path in (KILLED, whole))
        assert now | before == now


def stored(path):
    """The settings in a configuration or a checkpoint, by key, without the metric that drawn scenes
    asked for.
    """
    if path.suffix == ".ckpt":
        settings = torch.load(path)["captioning"]["config"]
    else:
        settings = read_settings(path)
        del settings["overrides"]
    del settings["data"]["metrics"]
    return dict(each_setting(settings))


def test_a_checkpoint_that_asks_for_a_metric_of_that_version_is_evaluated(elsewhere, printed):
    checkpoint = KILLED / "checkpoints" / "last.ckpt"
    printed(evaluate.main, f"checkpoint={checkpoint}", "metrics=[BLEU]", "name=again")
    provenance = read_json(elsewhere / "runs" / "again" / "scores.json")["provenance"]
    assert provenance["signatures"].keys() == {"BLEU"}


class NewerData(RunDataSettings):
    mixed: float = 0.0


class Newer(RunSettings):
    """The settings of a later version."""

    data: NewerData
    shuffled: bool = True


@pytest.mark.parametrize(
    "key, default, other",
    [
        ("schedule.final", 0, 0.1),  # 0.0 in the class
        ("decoding.filters.min_length", 0, 2),
        ("decoding.filters.prefix", [], ["a"]),
        ("shuffled", True, False),
        ("data.mixed", 0.0, 0.5),
        ("data.mixed", 0, 1),
    ],
)
def test_a_setting_that_they_lack_had_its_default(key, default, other, monkeypatch):
    monkeypatch.setattr(record, "RunSettings", Newer)
    group, _, name = key.rpartition(".")
    before = read_settings(KILLED / "config.yaml")
    below(before, group).pop(name, None)
    now = OmegaConf.to_container(in_some_folder(composed(*COMMAND)), resolve=True)
    below(now, group)[name] = default
    assert changed_settings(before, now) == {}
    below(now, group)[name] = other
    assert changed_settings(before, now).keys() == {key}


def below(settings, group):
    for name in filter(None, group.split(".")):
        settings = settings[name]
    return settings
