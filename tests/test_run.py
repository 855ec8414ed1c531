"""Whole runs, each a process of its own in an empty directory, of a model that learns nothing in a few steps."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from forked import run
from PIL import Image
from test_conf import composed

import captioning
from captioning.report.__main__ import main as report

MODEL = ["d_feat=8", "heads=2", "d_hidden=8", "encoder.layers=1", "decoder_layers=1"]
TINY = [
    *(f"model.{setting}" for setting in MODEL),
    "data.vocabulary.min_count=1",
    "data.num_workers=0",
    "trainer=cpu",
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=2",
    "metrics.val=[CIDEr]",
    "metrics.test=[BLEU,CIDEr]",
    "callbacks.attention.images=1",
]
SHAPES = [
    *TINY,
    "data.reader.train=24",
    "data.reader.val=5",
    "data.reader.test=5",
    "data.reader.max_objects=1",
    "backbone.size=32",
    "backbone.grid=4",
    "backbone.dim=8",
]
PACKAGE = str(Path(captioning.__file__).parents[1])
"""Where this package lies, so that the process runs no other one that may be installed."""
BLEU = [f"BLEU-{n}" for n in range(1, 5)]


def fresh(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run that ends well, from the interpreter's start to its end, where W&B has its last word."""
    ended = subprocess.run(
        [sys.executable, "-m", "captioning.run", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": PACKAGE} | environment,
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def first(home: Path) -> subprocess.CompletedProcess[str]:
    return fresh(home, *SHAPES)


def folder_of(home: Path, ended: subprocess.CompletedProcess[str]) -> Path:
    line = [line for line in ended.stdout.splitlines() if line.startswith("run folder: ")][-1]
    return home / line.removeprefix("run folder: ")


def test_run_folder(home: Path, first: subprocess.CompletedProcess[str]) -> None:
    folder = folder_of(home, first)
    assert folder == home / "runs" / "shapes-spatial_transformer-seed1"
    assert set(contents(folder)) == {
        "config.yaml",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
        "checkpoints/previous.ckpt",
        "metrics.csv",
        "run.json",
        "captions.jsonl",
        "scores.json",
        "attention/2000000.png",
        "attention/2000000.pdf",
        "attention.npz",
    }
    assert {path.name for path in home.iterdir()} == {"runs", "cache"}


def test_configuration_is_written_resolved(home: Path, first: subprocess.CompletedProcess[str]) -> None:
    text = (folder_of(home, first) / "config.yaml").read_text()
    assert "${" not in text
    config = yaml.safe_load(text)
    assert config["model"]["d_feat"] == 8
    assert config["name"] == "shapes"
    assert config["folder"] == "runs/shapes-spatial_transformer-seed1"


def test_scores_and_captions(home: Path, first: subprocess.CompletedProcess[str]) -> None:
    folder = folder_of(home, first)
    record = json.loads((folder / "scores.json").read_text())
    plain = {*BLEU, *(f"{name} (no brevity penalty)" for name in BLEU), "CIDEr"}
    attention = {f"attention {name}" for name in ("entropy", "entropy variance", "movement", "coverage")}
    worded = {"bad_endings", "length", "distinct-1", "distinct-2", "vocabulary used", "novel", "ended"}
    worded |= {"repeated", "unseen pairs", "first word entropy", "word entropy"}
    assert set(record["scores"]) == plain | {"pointing", "pointing (images shuffled)"} | attention | worded
    provenance = record["provenance"]
    # strictly, or the stopwatch was set back to the best checkpoint when that was loaded
    assert 0 < provenance["seconds_to_best"] < provenance["seconds_trained"]
    assert {"commit", "versions", "data_digest", "tokenizer", "device"} <= set(provenance)
    captions = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    assert [line["image_id"] for line in captions] == list(range(2000000, 2000005))
    assert all(set(line) == {"image_id", "caption", "references", "scores", "photograph"} for line in captions)
    root = yaml.safe_load((folder / "config.yaml").read_text())["data"]["reader"]["root"]
    assert all((home / root / line["photograph"]).is_file() for line in captions)
    assert all(len(line["references"]) == 5 for line in captions)
    assert "val/CIDEr" in (folder / "metrics.csv").read_text().splitlines()[0]


def test_checkpoint_is_safe_and_complete(home: Path, first: subprocess.CompletedProcess[str]) -> None:
    for name in ("best", "last"):
        saved = torch.load(folder_of(home, first) / "checkpoints" / f"{name}.ckpt", weights_only=True)
        config = saved["captioning"]["config"]
        assert config["model"]["_target_"] == "captioning.models.Transformer"
        assert config["data"]["max_words"] == 14
        assert {"red", "square"} <= set(saved["captioning"]["words"])
        assert saved["state_dict"]["backbone.scale"] == 1


def test_what_a_new_user_reads(home: Path, first: subprocess.CompletedProcess[str]) -> None:
    """Sizes, progress, the table, three captions, the folders; on standard error the drawing alone, no warnings."""
    out = first.stdout
    assert "images: train 24, val 5, test 5; vocabulary: " in out
    assert "parameters: model " in out
    table = out[out.index("\nimage 200000") :]
    for name in (*BLEU, "BLEU-1 (no brevity penalty)", "CIDEr", "pointing", "pointing (images shuffled)"):
        assert f"\n{name:<32}" in table
    assert table.count("\nimage 200000") == 3
    assert "pictures of attention: runs/shapes-spatial_transformer-seed1/attention" in table
    bars = [line for line in first.stderr.replace("\r", "\n").splitlines() if line.strip()]
    assert all(line.startswith("Drawing shapes") for line in bars), first.stderr
    assert "Warning" not in out


def test_the_report_measures_again_where_the_run_looked(
    home: Path, first: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    """From the checkpoint alone what the test had logged, and what other kinds of maps would have said."""
    folder = folder_of(home, first)
    kinds = ["weights", "rollout", "gradient"]
    settings = [f"runs={folder}", f"output={tmp_path}", f"cache={home}/cache", f"attention=[{','.join(kinds)}]"]
    report.__wrapped__(composed(*settings, name="report"))
    scores = json.loads((folder / "scores.json").read_text())["scores"]
    header, _, row = (tmp_path / "table.md").read_text().splitlines()[-3:]
    assert [cell.strip() for cell in header.split("|")[2:-1]] == kinds
    weights, *others = [cell.strip() for cell in row.split("|")[2:-1]]
    assert weights == f"{scores['pointing']:.1f} ({scores['pointing (images shuffled)']:.1f})"
    assert all(re.fullmatch(r"\d+\.\d \(\d+\.\d\)", other) for other in others)


def test_the_same_again_overwrites_nothing_and_says_the_same(
    home: Path, first: subprocess.CompletedProcess[str]
) -> None:
    before = contents(folder_of(home, first))
    again = run(home, *SHAPES, "data.num_workers=2")
    assert again.stderr == ""  # the scenes are drawn already
    folder = folder_of(home, again)
    assert folder == home / "runs" / "shapes-spatial_transformer-seed1-2"
    unchanged = contents(folder_of(home, first)) == before  # pytest would take minutes to show the difference
    assert unchanged
    identical = contents(folder)["captions.jsonl"][1] == before["captions.jsonl"][1]
    assert identical
    weights = [torch.load(f / "checkpoints" / "best.ckpt")["state_dict"] for f in (folder, folder_of(home, first))]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_sweep_over_seeds_without_test(home: Path, first: subprocess.CompletedProcess[str]) -> None:
    swept = run(home, "-m", *SHAPES, "seed=3,4", "test=false", "name=trial", "callbacks=averaged")
    assert "test score" not in swept.stdout
    folders = sorted((home / "runs").glob("trial-*"))
    assert [folder.name for folder in folders] == [f"trial-spatial_transformer-seed{seed}" for seed in (3, 4)]
    for folder, seed in zip(folders, (3, 4), strict=True):
        checkpoints = {f"checkpoints/{name}.ckpt" for name in ("best", "last", "previous")}
        assert set(contents(folder)) == {"config.yaml", "metrics.csv", "run.json"} | checkpoints
        assert yaml.safe_load((folder / "config.yaml").read_text())["seed"] == seed
        assert "test/" not in (folder / "metrics.csv").read_text().splitlines()[0]
    assert (folders[0] / "metrics.csv").read_text() != (folders[1] / "metrics.csv").read_text()
    assert not list(home.rglob("multirun.yaml")) or (home / "runs" / "multirun.yaml").exists()


def miniature(folder: Path) -> None:
    """Flickr8k in the Karpathy layout: six photographs of several sizes."""
    (folder / "images").mkdir(parents=True)
    entries = []
    for i, split in enumerate(["train", "train", "train", "train", "val", "test"]):
        Image.new("RGB", (50 + 7 * i, 40), (40 * i, 99, 10)).save(folder / "images" / f"{i}.jpg")
        captions = [["a", "dog", "runs"], ["two", "dogs"], ["a"] * 20]
        sentences = [{"raw": " ".join(words).capitalize() + " .", "tokens": words} for words in captions]
        entries.append({"filename": f"{i}.jpg", "imgid": i, "split": split, "sentences": sentences})
    (folder / "dataset_flickr8k.json").write_text(json.dumps({"images": entries}))


def test_photographs_with_cached_features_and_wandb(tmp_path: Path) -> None:
    miniature(tmp_path / "data")
    command = [
        *TINY,
        "data=flickr8k",
        "data.root=data",
        "backbone=squeezenet1_1",
        "backbone.weights=null",
        "backbone.size=48",
        "data.views=2",
        "data/view=mirrored",
    ]
    first = run(tmp_path, *command)
    assert "images: train 4, val 1, test 1" in first.stdout
    assert "(frozen)" in first.stdout
    folder = folder_of(tmp_path, first)
    assert folder.name == "flickr8k-spatial_transformer-seed1"
    (line,) = (folder / "captions.jsonl").read_text().splitlines()
    assert json.loads(line)["image_id"] == 5
    assert json.loads(line)["references"][2] == "A" + " a" * 19 + " ."  # too long to train on, not to score with
    scores = json.loads((folder / "scores.json").read_text())["scores"]
    assert not any("pointing" in name for name in scores)  # these photographs have no boxes
    saved = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    assert saved["state_dict"]["backbone.scale"] != 1
    for view in ("train", "val", "test", "train, view 2 of 2"):
        assert f"features of {view}:" in first.stderr
    cached = contents(tmp_path / "cache")
    assert sum(name.endswith("features.npy") for name in cached) == 4

    second = fresh(tmp_path, *command, "logger=wandb", WANDB_MODE="offline", WANDB_SILENT="true")
    assert "features of" not in second.stderr
    unchanged = contents(tmp_path / "cache") == cached
    assert unchanged
    again = folder_of(tmp_path, second)
    assert (again / "captions.jsonl").read_text() == (folder / "captions.jsonl").read_text()
    assert list(again.rglob("*.wandb"))
    assert (again / "metrics.csv").exists()
