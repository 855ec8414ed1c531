"""What a run is called by: what it has chosen otherwise than its system."""

import hashlib

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict, read_write
from support import composed, flickr8k
from test_run_folder import typed

from captioning.config.registry import CONF
from captioning.run import ignore_size
from captioning.runs.folders import choices
from captioning.runs.folders.choices import FREE
from captioning.runs.folders.folder import run_folder
from captioning.runs.settings import each_setting, is_in


@pytest.fixture
def chosen():
    """Gives the configuration of a run with its choices; of a job, if settings are swept."""

    def compose_run(*overrides, swept=()):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("config", list(overrides), return_hydra_config=True)
            with read_write(config), open_dict(config):
                config.hydra.mode = RunMode.MULTIRUN if swept else RunMode.RUN
                HydraConfig.instance().set_config(config)
                choices.keep_swept(swept)
                del config["hydra"]
            choices.add_choices(config)
        return config

    return compose_run


DECISIVE = (
    *("name", "seed", "init_from", "backbone", "objective", "model", "decoding", "optimizer"),
    *("schedule", "trainer", "metrics.val", "metrics.test", "data"),
)
"""Settings whose change is another run, as that of what they do not name is."""
CALLBACKS = {
    *("resume", "checkpoint", "early_stopping", "stopwatch", "throughput", "learning_rate"),
    *("weight_averaging", "compile", "results", "pointing", "attention_statistics", "wording"),
    *("attention", "kept_attention"),
}
"""Callbacks that change the result, or whose files a run must have from its beginning."""


def test_every_setting_and_callback_is_decisive_or_free(chosen):
    """A new one is declared `Free[...]` if it changes no result of a run; else it stands here."""
    config = chosen("logger=wandb")
    decisive = [*DECISIVE, *(f"callbacks.{name}" for name in CALLBACKS)]
    for key, _ in each_setting(OmegaConf.to_container(config)):
        assert is_in(key, FREE) or is_in(key, decisive), key
    assert not [key for key in FREE if key in decisive]


# the name of a run, by its overrides and those of them that are swept
TABLE = {
    "shapes-spatial_transformer_small-seed1": ("", ""),
    "shapes-sat_soft_small-seed2": (
        "model=sat_soft model/score=mlp seed=2",
        "",
    ),  # the system's own
    "shapes-sat_soft_small-seed1-score=dot": ("model=sat_soft model/score=dot", ""),
    "shapes-spatial_transformer_small-seed1-encoder=null": ("model.encoder=null", ""),
    "shapes-sat_soft_small-seed1-backbone=patches-objective=cross_entropy": (
        "model=sat_soft objective=cross_entropy backbone=patches",
        "",
    ),
    "shapes-sat_soft_small-seed1-score=Score": ("model=sat_soft model.score._target_=my.Score", ""),
    "shapes-spatial_transformer_small-seed1-class=Model": ("model._target_=my.Model", ""),
    # drawn scenes have the small size by default, photographs and the command the published one
    "shapes-spatial_transformer-seed1": ("model.size=published", ""),
    "demo-sat_soft-seed1": ("experiment=demo model=sat_soft model.size=published", ""),
    "backbones_shapes-spatial_transformer_small-seed1": ("experiment=backbones_shapes", ""),
    "zoo_shapes-patches_transformer_small-seed1": (
        "experiment=zoo_shapes model=patches_transformer",
        "",
    ),
    "flickr8k-sat_soft_small-seed1": ("data=flickr8k model=sat_soft model.size=small", ""),
    # what a run began from, if the command does not name it
    "shapes-spatial_transformer_small-seed1-init_from=best": ("init_from=runs/a/best.ckpt", ""),
    "second-spatial_transformer_small-seed1": ("name=second init_from=pretrained", ""),
    # what a data set, an experiment or a machine chooses is no choice of the run, nor are numbers
    "flickr8k-spatial_transformer-seed1": ("data=flickr8k backbone=vgg11 optimizer.lr=0.1", ""),
    "flickr8k-sat_soft-seed1": ("experiment=zoo_flickr8k model=sat_soft trainer=cpu", ""),
    # but in a sweep
    "shapes-spatial_transformer_small-seed3-optimizer.lr=0.1": (
        "optimizer.lr=1e-1 model.dropout=0.3 seed=3",
        "optimizer.lr",
    ),
    "shapes-spatial_transformer_small-seed4": ("optimizer.lr=0.0003 seed=4", "optimizer.lr seed"),
    "shapes-spatial_transformer_small-seed1-callbacks=compiled": (
        "callbacks=compiled",
        "callbacks",
    ),
    "demo-spatial_transformer_small-seed1-data=shapes": ("experiment=demo data=shapes", "data"),
    "shapes-spatial_transformer_small-seed1-data.note=a_.._c_d": (
        "+data.note=a/../c(d",
        "data.note",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_choices_name_a_run(name, chosen, tmp_path):
    overrides, swept = (text.split() for text in TABLE[name])
    if name.startswith("flickr8k"):  # whose captions must be there
        flickr8k(tmp_path)
        overrides.append(f"data.root={tmp_path}")
    config = chosen(*(quoted(override) for override in overrides), swept=swept)
    assert run_folder(typed(config)).name == name
    further = {key: value for key, value in config.choices.items() if key not in choices.SYSTEM}
    assert all(f"{key}=" in name for key in further)


def quoted(override):
    key, _, value = override.partition("=")
    return f"{key}='{value}'" if "(" in value else override


def test_a_long_name_is_cut_and_told_apart_by_a_digest(chosen):
    root = 200 * "x"
    config = chosen(f"+data.note={root}", swept=["data.note"])
    digest = hashlib.sha256(f"data.note={root}".encode()).hexdigest()[:8]
    further = run_folder(typed(config)).name.removeprefix("shapes-spatial_transformer_small-seed1-")
    assert further == f"{f'data.note={root}'[:91]}-{digest}"


def test_an_experiment_of_ones_own_may_leave_a_part_open(tmp_path, chosen):
    (tmp_path / "experiment").mkdir()
    parts = "- override /backbone: ???\n- override /model: sat_soft\n"
    text = f"# @package _global_\ndefaults:\n{parts}name: mine\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    config = chosen(f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine", "backbone=patches")
    assert run_folder(typed(config)).name == "mine-sat_soft_small-seed1-backbone=patches"


def test_a_model_of_ones_own_without_sizes_is_swept_beside_others(tmp_path, caplog):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("_target_: my_model.Mine\n")
    for model, name in {"mine": "mine", "sat_soft": "sat_soft_small"}.items():
        own = f"hydra.searchpath=['file://{tmp_path}']"
        config = composed(own, f"model={model}", "model.size=small")
        with caplog.at_level("INFO", "captioning"):
            ignore_size(config)
        assert config.choices.model == name
    (line,) = caplog.messages
    assert line.endswith(": mine has one size")  # and no name of a size
