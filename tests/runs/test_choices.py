"""What a run is called by: what it has chosen otherwise than its system."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from captioning.config.registry import CONF
from captioning.runs.choices import MAX_FURTHER, SYSTEM, add_choices
from captioning.runs.folder import run_folder


def chosen(*overrides: str, swept: Sequence[str] = ()) -> DictConfig:
    """The configuration of a run with its choices; of a job, if settings are swept."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(overrides), return_hydra_config=True)
        with read_write(config), open_dict(config):
            config.hydra.mode = RunMode.MULTIRUN if swept else RunMode.RUN
            keys = {override.partition("=")[0].lstrip("+") for override in overrides}
            config.hydra.job.config.override_dirname.exclude_keys = sorted(keys - set(swept))
            HydraConfig.instance().set_config(config)
            del config["hydra"]
        add_choices(config)
    return config


TABLE: list[tuple[list[str], list[str], dict[str, Any], str]] = [
    ([], [], {}, "shapes-spatial_transformer-seed1"),
    (
        ["model=sat_soft", "model/score=mlp", "seed=2"],
        [],
        {},
        "shapes-sat_soft-seed2",
    ),  # the system's own
    (
        ["model=sat_soft", "model/score=dot"],
        [],
        {"score": "dot"},
        "shapes-sat_soft-seed1-score=dot",
    ),
    (
        ["model=sat_soft", "model/encoder=layers"],
        [],
        {"encoder": "layers"},
        "shapes-sat_soft-seed1-encoder=layers",
    ),
    (
        ["model.encoder=null"],
        [],
        {"encoder": None},
        "shapes-spatial_transformer-seed1-encoder=null",
    ),
    (["objective=cross_entropy"], [], {}, "shapes-spatial_transformer-seed1"),
    (
        ["model=sat_soft", "objective=cross_entropy", "backbone=patches"],
        [],
        {"backbone": "patches", "objective": "cross_entropy"},
        "shapes-sat_soft-seed1-backbone=patches-objective=cross_entropy",
    ),
    (
        ["model=sat_soft", "model.score._target_=my.Score"],
        [],
        {"score": "Score"},
        "shapes-sat_soft-seed1-score=Score",
    ),
    (
        ["model._target_=my.Model"],
        [],
        {"class": "Model"},
        "shapes-spatial_transformer-seed1-class=Model",
    ),
    # what a data set, an experiment or a machine chooses is no choice of the run
    (["data=flickr8k", "backbone=vgg11"], [], {}, "flickr8k-spatial_transformer-seed1"),
    (["experiment=zoo_flickr8k", "model=sat_soft"], [], {}, "flickr8k-sat_soft-seed1"),
    (
        ["trainer=cpu", "logger=wandb", "callbacks=compiled"],
        [],
        {},
        "shapes-spatial_transformer-seed1",
    ),
    # numbers and other settings have a name only in a sweep
    (["optimizer.lr=0.1", "model.dropout=0.3"], [], {}, "shapes-spatial_transformer-seed1"),
    (
        ["optimizer.lr=1e-1", "model.dropout=0.3", "seed=3"],
        ["optimizer.lr"],
        {"optimizer.lr": 0.1},
        "shapes-spatial_transformer-seed3-optimizer.lr=0.1",
    ),
    (
        ["optimizer.lr=0.0003"],
        ["optimizer.lr"],
        {},
        "shapes-spatial_transformer-seed1",
    ),  # the default
    (
        ["callbacks=compiled"],
        ["callbacks"],
        {"callbacks": "compiled"},
        "shapes-spatial_transformer-seed1-callbacks=compiled",
    ),
    (
        ["experiment=demo", "data=shapes"],
        ["data"],
        {},
        "demo-spatial_transformer_small-seed1-data=shapes",
    ),
    (
        ["model=sat_soft", "model/score=dot", "model.score._target_=my.Score"],
        ["model/score", "model.score._target_"],
        {"score": "dot"},
        "shapes-sat_soft-seed1-score=dot",
    ),
    (
        ["+data.note='a b/../c(d)'"],
        ["data.note"],
        {"data.note": "a b/../c(d)"},
        "shapes-spatial_transformer-seed1-data.note=a_b_.._c_d",
    ),
]


@pytest.mark.parametrize(("overrides", "swept", "choices", "name"), TABLE, ids=str)
def test_choices_name_a_run(
    overrides: list[str], swept: list[str], choices: dict[str, Any], name: str
) -> None:
    config = chosen(*overrides, swept=swept)
    found: Any = OmegaConf.to_container(config.choices)
    assert {key: value for key, value in found.items() if key not in SYSTEM} == choices
    assert run_folder(config).name == name


def test_a_long_name_is_cut_and_told_apart_by_a_digest() -> None:
    root = 200 * "x"
    config = chosen(f"+data.note={root}", swept=["data.note"])
    digest = hashlib.sha256(f"data.note={root}".encode()).hexdigest()[:8]
    further = run_folder(config).name.removeprefix("shapes-spatial_transformer-seed1-")
    assert further == f"{f'data.note={root}'[:91]}-{digest}"
    assert len(further) == MAX_FURTHER


def test_an_experiment_of_ones_own_may_leave_a_part_open(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    text = (
        "# @package _global_\ndefaults:\n- override /backbone: ???\n- override /model: sat_soft\n"
    )
    (tmp_path / "experiment" / "mine.yaml").write_text(text + "name: mine\n")
    config = chosen(f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine", "backbone=patches")
    assert run_folder(config).name == "mine-sat_soft-seed1-backbone=patches"
