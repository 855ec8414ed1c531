"""The checkpoint of a run, on the splits of its own data."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluating import BOTH, QUICK, read
from processes import run
from support import SHAPES, contents, folder_of

from captioning import evaluate
from captioning.runs.checkpoints.checkpoint import with_digest
from captioning.runs.evaluation import attention_file


@pytest.fixture
def at_home(shapes_run, elsewhere, monkeypatch):
    """A copy of the place where a model was trained on drawn scenes, as the current directory."""
    monkeypatch.chdir(shutil.copytree(shapes_run.home, elsewhere / "home"))
    return shapes_run


def test_an_ensemble_of_one_checkpoint_and_bleu_without_java(at_home, command, monkeypatch):
    monkeypatch.setenv("_JAVA_OPTIONS", "-XX:+NoSuchOption")  # every start of Java would fail
    member = f"runs/{at_home.folder.name}/checkpoints/best.ckpt"
    command(f"decoding.ensemble=[{member},{member}]", QUICK)
    _, provenance, lines = read("evaluate")
    assert [line["caption"] for line in lines] == at_home.captions
    assert [file["file"] for file in provenance["ensemble"]] == [member] * 2


def test_a_checkpoint_of_a_subset_of_the_training_images(elsewhere, command):
    folder = folder_of(elsewhere, run(elsewhere, *SHAPES, "data.train_images=3"))
    command(f"checkpoint={folder}/checkpoints/best.ckpt", QUICK, "name=again")
    _, run_provenance, run_lines = read(folder)
    _, provenance, lines = read("again")
    assert [line["caption"] for line in lines] == [line["caption"] for line in run_lines]
    assert provenance["data_digest"] == run_provenance["data_digest"]


def test_a_checkpoint_on_its_own_test_split(at_home, command):
    """What the run has said and scored at its end, again; and nothing of the run's is touched."""
    run = Path("runs") / at_home.folder.name
    before = contents(run)
    checkpoint = f"checkpoint={run}/checkpoints/best.ckpt"
    printed = command(checkpoint, BOTH, "name=tested")
    scores, provenance, lines = read("tested")
    run_scores, run_provenance, run_lines = read(run.name)
    assert lines == run_lines
    expected = {name: run_scores[name] for name in scores}
    assert scores == pytest.approx(expected, rel=1e-5)  # the run logs float32
    assert provenance["data_digest"] == run_provenance["data_digest"]
    assert (provenance["split"], provenance["images"]) == ("test", 5)
    assert "\ntest score (0-100; CIDEr x 100)\n" in printed
    kept, again = (attention_file.read(Path(f, "attention.npz")) for f in (run, "runs/tested"))
    for ours, theirs in zip(kept, again, strict=True):
        assert (ours.image_id, ours.words, list(ours.maps)) == (
            *(theirs.image_id, theirs.words),
            list(theirs.maps),
        )
        for name in ours.maps:
            np.testing.assert_allclose(ours.maps[name], theirs.maps[name], atol=1 / 255)
    assert (before == contents(run)) is True

    settings = ["split=val", "decoding=greedy", "decoding.max_length=2"]
    command(checkpoint, QUICK, "name=val", *settings)
    _, provenance, lines = read("val")
    assert [line["image_id"] for line in lines] == list(range(1000000, 1000020))
    assert all(len(line["caption"].split()) <= 2 for line in lines)
    assert provenance["decoding"]["max_length"] == 2


def test_diversity_of_a_checkpoint_and_of_its_captions(at_home, command):
    """The alternatives of each image are in `captions.jsonl`, from which the scores come again."""
    checkpoint = f"checkpoint=runs/{at_home.folder.name}/checkpoints/best.ckpt"
    metrics = "metrics=[experiments.diversity.metric.Diversity,CIDEr]"
    search = ["decoding=sample", "decoding.n=3", "decoding.temperature=2"]
    command(checkpoint, metrics, "name=one", *search)
    scores, provenance, lines = read("one")
    several = [line["alternatives"] for line in lines]
    assert set(map(len, several)) == {2}
    assert scores["CIDEr (best of n)"] >= max(scores["CIDEr"], scores["CIDEr (mean of n)"])
    command("captions=runs/one/captions.jsonl", metrics, "name=again")
    again, provenance_again, lines_again = read("again")
    assert again == pytest.approx({name: scores[name] for name in again})
    assert [line["alternatives"] for line in lines_again] == several
    signatures = [source["signatures"]["diversity"] for source in (provenance, provenance_again)]
    assert signatures[0] == signatures[1]


def test_scenes_are_drawn_again_where_they_are_not(shapes_run, elsewhere, command):
    command(f"checkpoint={shapes_run.checkpoint}", QUICK, "cache=scenes")
    assert [line["caption"] for line in read("evaluate")[2]] == shapes_run.captions
    assert {path.name for path in elsewhere.iterdir()} == {
        "runs",
        "scenes",
        "ours.json",
        "references.json",
    }


def test_what_only_a_checkpoint_says_is_not_done(shapes_run, refused):
    saved = torch.load(shapes_run.checkpoint, weights_only=True)
    del saved["digest"]
    data = saved["captioning"]["config"]["data"]
    touch = {
        "_target_": "pathlib.Path.touch",
        "_args_": [{"_target_": "pathlib.Path", "_args_": ["sprung"]}],
    }
    for reader, message in (
        (touch, "names pathlib.Path.touch, which is no part of captioning"),
        (data["reader"] | {"root": "../sprung"}, "outside of cache=."),
        (data["reader"] | {"root": "~/sprung"}, "outside of cache=."),
    ):
        data["reader"] = reader
        torch.save(with_digest(saved), "poisoned.ckpt")
        assert message in refused(evaluate.main, "checkpoint=poisoned.ckpt", "cache=.")
        assert not any(
            Path(path).expanduser().exists() for path in ("sprung", "../sprung", "~/sprung")
        )


REFUSED = {
    "{shapes} +data.reader.seed=5": "not the data set that the checkpoint was trained on",
    "{shapes} data.root=.": "data.root",
    "{shapes} language=de": "language",
    "{shapes} +data.tokens=words": "tokens",
    "{shapes} calibrate=true split=test": "calibrate=true",
    "{shapes} calibrate=true split=val decoding.width=2": "calibrate=true",
    "{shapes} calibrate=true split=val corruptions=[dark]": "calibrate=true",
    "{shapes} calibrate=true split=val data=shapes": "calibrate=true",
}


@pytest.mark.parametrize("arguments, key", REFUSED.items())
def test_refused(shapes_run, refused, arguments, key):
    # so that nothing is drawn and no progress printed
    shutil.copytree(shapes_run.home / "cache", "cache")
    checkpoint = f"checkpoint={shapes_run.checkpoint}"
    assert key in refused(evaluate.main, *arguments.format(shapes=checkpoint).split())
    assert not Path("runs").exists()
