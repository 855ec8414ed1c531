"""What a sweep's jobs are called, and how they rank; whole sweeps are in tests/test_sweeps.py."""

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, read_write
from test_check import config

from captioning.runs.folder import LONGEST, run_folder
from captioning.runs.jobs import ranking

LONG = ",".join(f"data.root=/photographs/{number}" for number in range(9))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("", ""),
        ("backbone.grid=28-optimizer.lr=1e-3", "-backbone.grid=28-optimizer.lr=1e-3"),
        ("model/score=dot", "-model.score=dot"),
        ("+data.note='a b/../c$(d)'", "-+data.note=_a_b....c_d"),
        ("decoding.select=[1,3]", "-decoding.select=_1_3"),
    ],
)
def test_a_folder_tells_what_is_swept(given: str, name: str) -> None:
    composed = config("seed=7")
    usual = run_folder(composed).name
    assert usual.endswith("-seed7")
    assert named(given, composed) == usual + name


def test_a_long_one_is_cut_and_told_apart() -> None:
    composed = config("seed=7")
    usual = run_folder(composed).name
    names = [named(LONG + end, composed).removeprefix(usual) for end in "ab"]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {LONGEST + 1}


def named(given: str, composed: DictConfig) -> str:
    hydra = HydraConfig.get()
    with read_write(hydra):
        hydra.mode, hydra.job.override_dirname = RunMode.MULTIRUN, given
    return run_folder(composed).name


def test_the_best_comes_first_and_what_failed_last() -> None:
    jobs = [
        {"settings": settings, "score": score, "folder": folder, "monitor": "val/CIDEr", "mode": "max"}
        for settings, score, folder in [
            ("seed=1 model=a", 9.96, "runs/1"),
            ("seed=-1 model=a", None, "failed"),
            ("seed=2 model=bc", 112.3, "runs/2"),
        ]
    ]
    assert ranking(jobs).splitlines() == [
        "",
        "jobs by val/CIDEr",
        "   1   112.3  seed=2 model=bc  runs/2",
        "   2    10.0  seed=1 model=a   runs/1",
        "   3       -  seed=-1 model=a  failed",
    ]
    least = [job | {"mode": "min"} for job in jobs]
    assert [line.split()[-1] for line in ranking(least).splitlines()[2:]] == ["runs/1", "runs/2", "failed"]
