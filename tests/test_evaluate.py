"""The command on files of captions, and on the checkpoints of two small runs."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from processes import java_that
from processes import run as train
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
from pycocotools.coco import COCO
from support import SHAPES, TINY, flickr8k

from captioning import evaluate
from captioning.config.command import start
from captioning.metrics.java import find_java
from captioning.metrics.wording import wording
from captioning.runs import attention_file
from captioning.runs.checkpoint import with_digest

pytestmark = pytest.mark.usefixtures("elsewhere")

REFERENCES = {
    31: ["A man's dog runs across the green field.", "The dog is running; it looks happy!"],
    7: ["Two well-dressed people are standing in front of a bus", 'A "no parking" sign next to two people.'],
    500: ["A RED double-decker bus drives down the street...", "red bus (London) on a street"],
    2: ["3 1/2 pizzas on a table at 7:30 p.m.", "Some pizza on a wooden table.", "Half-eaten pizza, $5.99"],
    8: ["A café table with two croissants", "Two croissants on a plate in a café."],
}
OURS = {
    2: "Pizza on a table",
    7: "two people next to a sign",
    8: "croissants in a CAFÉ",
    31: "A dog is running.",
    500: "a bus",
}
THEIRS = OURS | {31: "a dog runs across a green field", 500: "a red double-decker bus on the street"}
BLEU = [f"BLEU-{n}" for n in range(1, 5)]
QUICK = "metrics=[BLEU]"
WORDING = set(wording(["a dog"]))


Command = Callable[..., str]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command; gives what it prints."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["captioning.evaluate", "timeout=600", *arguments])
        evaluate.main()
        return capsys.readouterr().out

    return run


def results(path: str, captions: dict[Any, str]) -> str:
    Path(path).write_text(json.dumps([{"image_id": i, "caption": caption} for i, caption in captions.items()]))
    return path


def annotations(path: str, references: dict[Any, list[str]] = REFERENCES) -> str:
    texts = [(i, text) for i, each in references.items() for text in each]
    entries = [{"id": number, "image_id": i, "caption": text} for number, (i, text) in enumerate(texts)]
    Path(path).write_text(json.dumps({"images": [{"id": i} for i in references], "annotations": entries}))
    return path


def read(folder: Path) -> tuple[dict[str, float], dict[str, Any], list[dict[str, Any]]]:
    record = json.loads((folder / "scores.json").read_text())
    lines = (folder / "captions.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    return record["scores"], record["provenance"], [json.loads(line) for line in lines]


def test_equal_to_pycocoevalcap_and_pycocotools(
    elsewhere: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the same files, read by COCO's own tools."""
    monkeypatch.setenv("PATH", str(find_java().parent), prepend=os.pathsep)
    their_meteor = Meteor()  # first, so that it loads its tables while ours does
    command(f"captions={results('ours.json', OURS)}", f"references={annotations('references.json')}")
    scores, _, lines = read(elsewhere / "runs" / "evaluate")

    coco = COCO("references.json")
    given = coco.loadRes("ours.json")
    truth = PTBTokenizer().tokenize({i: coco.imgToAnns[i] for i in coco.getImgIds()})
    candidates = PTBTokenizer().tokenize({i: given.imgToAnns[i] for i in coco.getImgIds()})
    bleu, per_image_bleu = Bleu().compute_score(truth, candidates, verbose=0)
    expected = dict(zip(BLEU, zip(bleu, per_image_bleu, strict=True), strict=True))
    expected |= {
        name: scorer.compute_score(truth, candidates)
        for name, scorer in (("METEOR", their_meteor), ("ROUGE-L", Rouge()), ("CIDEr", Cider()))
    }
    their_meteor.meteor_p.stdout.close()
    their_meteor.meteor_p.stderr.close()
    by_id = {line["image_id"]: line["scores"] for line in lines}
    for name, (of_corpus, per_image) in expected.items():
        assert scores[name] == pytest.approx(100 * of_corpus, abs=1e-6), name
        theirs = {i: 100 * score for i, score in zip(coco.getImgIds(), per_image, strict=True)}
        assert {i: line[name] for i, line in by_id.items()} == pytest.approx(theirs, abs=1e-4), name
    assert min(score for name, score in scores.items() if name not in WORDING) > 0


def test_what_it_leaves_and_prints(elsewhere: Path, command: Command) -> None:
    results("ours.json", OURS)
    annotations("references.json")
    printed = command("captions=ours.json", "references=references.json", "metrics=[CIDEr,BLEU]")
    folder = elsewhere / "runs" / "evaluate"
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "scores.json", "captions.jsonl"}
    scores, provenance, lines = read(folder)
    assert set(scores) == {*BLEU, *(f"{name} (no brevity penalty)" for name in BLEU), "CIDEr", *WORDING}
    assert {"commit", "versions", "tokenizer"} <= set(provenance)
    assert provenance["captions"]["file"] == "ours.json"
    assert len(provenance["references"]["sha256"]) == 64
    assert (provenance["images"], provenance["images_with_references"], provenance["captions_left_out"]) == (5, 5, 0)
    assert [line["image_id"] for line in lines] == list(REFERENCES)
    assert [line["references"] for line in lines] == list(REFERENCES.values())
    assert [line["caption"] for line in lines] == [OURS[i] for i in REFERENCES]
    assert yaml.safe_load((folder / "config.yaml").read_text())["metrics"] == ["CIDEr", "BLEU"]
    assert printed.startswith("images: 5\nrun folder: runs/evaluate\n")
    assert f"\nBLEU-1{scores['BLEU-1']:>33.1f}\n" in printed
    assert "\nscore (0-100; CIDEr x 100)\nBLEU-1 " in printed
    assert "image 31: A dog is running.\n    reference: A man's dog" in printed

    command("captions=ours.json", "references=references.json", QUICK)
    assert (elsewhere / "runs" / "evaluate-2" / "scores.json").exists()


def test_its_own_captions_have_their_references(elsewhere: Path, command: Command) -> None:
    results("ours.json", OURS | {2: "a 🍕\u2028on a table"})
    command("captions=ours.json", f"references={annotations('references.json')}", QUICK)
    first = elsewhere / "runs" / "evaluate"
    command("captions=runs/evaluate/captions.jsonl", QUICK, "name=again")
    again = elsewhere / "runs" / "again"
    assert read(again)[0] == read(first)[0]
    assert (again / "captions.jsonl").read_bytes() == (first / "captions.jsonl").read_bytes()


def test_shuffled_is_each_caption_with_the_next_images_references(elsewhere: Path, command: Command) -> None:
    ids = list(REFERENCES)
    results("ours.json", OURS)
    results("moved.json", {here: OURS[there] for here, there in zip(ids, [*ids[1:], ids[0]], strict=True)})
    annotations("references.json")
    command("captions=ours.json", "references=references.json", "shuffled=true", QUICK)
    command("captions=moved.json", "references=references.json", "name=moved", QUICK)
    folders = [elsewhere / "runs" / name / "captions.jsonl" for name in ("evaluate", "moved")]
    assert folders[0].read_bytes() == folders[1].read_bytes()


def test_against_other_captions(elsewhere: Path, command: Command) -> None:
    results("ours.json", OURS)
    results("theirs.json", dict(reversed(THEIRS.items())))
    annotations("references.json")
    arguments = ["references=references.json", "metrics=[BLEU,ROUGE-L]", "bootstrap.samples=300", "bootstrap.seed=4"]
    printed = command("captions=ours.json", "against=theirs.json", *arguments)
    command("captions=theirs.json", "name=theirs", *arguments)
    record = json.loads((elsewhere / "runs" / "evaluate" / "comparison.json").read_text())
    assert (record["images"], record["samples"], record["seed"]) == (5, 300, 4)
    assert record["against"]["file"] == "theirs.json"
    ours, theirs = (read(elsewhere / "runs" / name)[0] for name in ("evaluate", "theirs"))
    assert set(record["scores"]) == set(ours) - set(WORDING)
    for name, row in record["scores"].items():
        assert (row["ours"], row["theirs"]) == pytest.approx((ours[name], theirs[name]))
        assert row["difference"] == pytest.approx(ours[name] - theirs[name])
        assert row["low"] <= row["difference"] <= row["high"]
        assert 0 < row["p"] <= 1
    assert record["scores"]["BLEU-1"]["difference"] < -5
    assert "against theirs.json, 5 images, 300 bootstrap samples" in printed
    assert printed.count("\nROUGE-L ") == 2

    command("captions=ours.json", "against=ours.json", "name=same", *arguments)
    same = json.loads((elsewhere / "runs" / "same" / "comparison.json").read_text())["scores"]
    assert all(row["difference"] == row["low"] == row["high"] == 0 and row["p"] == 1 for row in same.values())


def test_only_the_common_images_and_it_says_so(elsewhere: Path, command: Command) -> None:
    results("part.json", {31: "A dog is running.", 7: "people", 99: "nobody asked", 98: "nor here"})
    annotations("references.json")
    printed = command("captions=part.json", "references=references.json", "common_only=true", QUICK)
    assert printed.startswith("images: 2 of 5; 2 captions of captions=part.json left out\n")
    scores, provenance, lines = read(elsewhere / "runs" / "evaluate")
    assert (provenance["images"], provenance["images_with_references"], provenance["captions_left_out"]) == (2, 5, 2)
    assert [line["image_id"] for line in lines] == [31, 7]
    two = {i: REFERENCES[i] for i in (31, 7)}
    results("two.json", {i: OURS[i] if i == 31 else "people" for i in two})
    command("captions=two.json", f"references={annotations('two_references.json', two)}", QUICK, "name=two")
    assert read(elsewhere / "runs" / "two")[0] == scores


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["either checkpoint=FILE", "captions=FILE and references=FILE"]),
        (["captions=ours.json", "checkpoint=x.ckpt"], ["either checkpoint=FILE"]),
        (["checkpoint=x.ckpt", "references=references.json"], ["leave references out"]),
        (["checkpoint=x.ckpt"], ["checkpoint=x.ckpt is not there"]),
        (["captions=ours.json"], ["ours.json, read as COCO's annotations"]),
        (["captions=no.json", "references=references.json"], ["No such file", "no.json"]),
        (["captions=ours.json", "references=references.json", "against=no.json"], ["No such file", "no.json"]),
        (["captions=deep.json", "references=references.json"], ["deep.json", "Invalid JSON"]),
        (["captions=part.json", "references=references.json"], ["captions=part.json has no caption for 4 of 5 images"]),
        (["captions=ours.json", "references=references.json", "against=part.json"], ["against=part.json has no"]),
        (["captions=ours.json", "references=references.json", "metrics=[BLUE]"], ["metrics"]),
        (["captions=ours.json", "references=references.json", "metrics=BLEU"], ["metrics"]),
        (["captions=ours.json", "references=references.json", "metrics=[]"], ["metrics"]),
        (["captions=ours.json", "references=references.json", "common_only=1"], ["common_only"]),
        (["captions=ours.json", "bootstrap.samples=0"], ["bootstrap.samples"]),
        (["captions=ours.json", "bootstrap.seed=-1"], ["bootstrap.seed"]),
        (["captions=ours.json", "bootstrap=null"], ["bootstrap"]),
        (["captions=ours.json", "timeout=x"], ["timeout"]),
        (["captions=ours.json", "timeout=inf"], ["timeout"]),
        (["captions=ours.json", "name=null"], ["name"]),
        (["captions=ours.json", "runs=null"], ["runs"]),
        (["captions=ours.json", "metrics=null"], ["metrics"]),
        (["captions=5"], ["captions"]),
        (["captions=ours.json", "split=train"], ["split"]),
        (["captions=ours.json", "refs=x"], ["there is no setting refs", "references"]),
    ],
)
def test_refused(refused: Command, arguments: list[str], parts: list[str]) -> None:
    results("ours.json", OURS)
    results("part.json", {31: "a dog"})
    annotations("references.json")
    Path("deep.json").write_text("[" * 100_000)
    message = refused(evaluate.main, *arguments)
    assert [part for part in parts if part not in message] == []
    assert not Path("runs").exists()


def test_captions_are_on_disk_when_the_scorer_fails(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results("ours.json", OURS)
    annotations("references.json")
    monkeypatch.setenv("_JAVA_OPTIONS", "-XX:+NoSuchOption")
    monkeypatch.setattr(sys, "argv", ["captioning.evaluate", "captions=ours.json", "references=references.json"])
    with pytest.raises(SystemExit):
        start(evaluate.main)
    folder = elsewhere / "runs" / "evaluate"
    assert len((folder / "captions.jsonl").read_text().splitlines()) == 5
    assert not (folder / "scores.json").exists()


ONLY_BLEU = [
    "metrics.val=[BLEU]",
    "metrics.test=[BLEU]",
    "callbacks.checkpoint.monitor=val/BLEU-4",
    "callbacks.attention=null",
]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a model was trained and tested on drawn scenes; it says something, if nothing sensible."""
    home = tmp_path_factory.mktemp("shapes")
    train(home, *SHAPES, *ONLY_BLEU, **java_that(home / "java", f"echo $* >> {home}/started"))
    return home


RUN = "runs/shapes-spatial_transformer-seed1"
BEST = f"{RUN}/checkpoints/best.ckpt"
CHECKPOINT = f"checkpoint={BEST}"


def test_a_run_with_bleu_alone_starts_the_tokenizer_alone(shapes: Path) -> None:
    started = (shapes / "started").read_text().splitlines()
    assert len(started) >= 3  # of validation and test references once, and of captions
    assert all("edu.stanford.nlp.process.PTBTokenizer" in line for line in started)


def test_a_checkpoint_on_its_own_test_split(shapes: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the run has said and scored at its end, again; and nothing of the run's is touched."""
    monkeypatch.chdir(shapes)
    run = shapes / RUN
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    printed = command(CHECKPOINT, QUICK, "name=tested")
    scores, provenance, lines = read(shapes / "runs" / "tested")
    run_scores, run_provenance, run_lines = read(run)
    assert lines == run_lines
    assert scores == pytest.approx({name: run_scores[name] for name in scores}, rel=1e-5)  # the run logs float32
    assert provenance["data_digest"] == run_provenance["data_digest"]
    assert provenance["decoding"]["width"] == 3
    assert (provenance["split"], provenance["images"]) == ("test", 5)
    assert "\ntest score (0-100)\n" in printed
    kept, again = (attention_file.read(folder / "attention.npz") for folder in (run, shapes / "runs" / "tested"))
    assert [(each.image_id, " ".join(each.words)) for each in again] == [(x["image_id"], x["caption"]) for x in lines]
    for ours, theirs in zip(kept, again, strict=True):
        assert list(ours.maps) == list(theirs.maps)
        for name in ours.maps:
            np.testing.assert_allclose(ours.maps[name], theirs.maps[name], atol=1 / 255)
    unchanged = before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert unchanged


def test_decoding_and_split_can_be_chosen(shapes: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shapes)
    printed = command(CHECKPOINT, QUICK, "name=val", "split=val", "decoding.max_length=2", "decoding.width=1")
    _, provenance, lines = read(shapes / "runs" / "val")
    assert [line["image_id"] for line in lines] == list(range(1000000, 1000005))
    assert all(len(line["caption"].split()) <= 2 for line in lines)
    assert (provenance["decoding"]["max_length"], provenance["decoding"]["width"]) == (2, 1)
    assert "\nval score (0-100)\n" in printed
    command(CHECKPOINT, QUICK, "name=greedy", "split=val", "decoding=greedy", "decoding.max_length=2")
    assert read(shapes / "runs" / "greedy")[2] == lines


def test_an_ensemble_of_two_kinds(shapes: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a backbone of its own, and a grid of its own."""
    monkeypatch.chdir(shapes)
    other = ["model=sat_soft", "model.d_embed=8", "model.d_hidden=8", "backbone.grid=2", "backbone.dim=16"]
    train(shapes, *(s for s in SHAPES if "model." not in s), *ONLY_BLEU, *other, "test=false")
    members = [f"runs/shapes-{model}-seed1/checkpoints/best.ckpt" for model in ("spatial_transformer", "sat_soft")]
    command(f"decoding.ensemble=[{','.join(members)}]", QUICK, "name=together")
    _, provenance, lines = read(shapes / "runs" / "together")
    assert [line["image_id"] for line in lines] == list(range(2000000, 2000005))
    assert [file["file"] for file in provenance["ensemble"]] == members
    assert provenance["decoding"]["ensemble"] == members
    command(f"decoding.ensemble=[{members[0]},{members[0]}]", QUICK, "name=one")
    assert read(shapes / "runs" / "one")[2] == read(shapes / RUN)[2]


def test_a_checkpoint_against_captions(shapes: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shapes)
    other = f"against={RUN}/captions.jsonl"
    command(CHECKPOINT, QUICK, other, "name=both", "bootstrap.samples=10")
    record = json.loads((shapes / "runs" / "both" / "comparison.json").read_text())
    assert all(row["difference"] == 0 and row["p"] == 1 for row in record["scores"].values())


def test_scenes_are_drawn_again_where_they_are_not(shapes: Path, elsewhere: Path, command: Command) -> None:
    checkpoint = f"checkpoint={shapes}/{BEST}"
    command(checkpoint, QUICK, "cache=scenes")
    assert read(elsewhere / "runs" / "evaluate")[2] == read(shapes / RUN)[2]
    assert {path.name for path in elsewhere.iterdir()} == {"runs", "scenes"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["+data.reader.seed=5"], ["not the data set that the checkpoint was trained on"]),
        (["data.root=."], ["there is no setting data.root", "eval_batch_size"]),
        (["+data.num_worker=1"], ["there is no setting data.num_worker", "Did you mean num_workers?"]),
        (["+data.reader.colour=red"], ["no setting data.reader.colour", "max_objects"]),
        (["data.eval_batch_size=0"], ["data.eval_batch_size"]),
        (["decoding.width=0"], ["decoding.width=0"]),
        (
            ["decoding=greedy", "decoding.width=2"],
            ["no setting decoding.width", "in decoding: filters, forbidden, max_length"],
        ),
        (["device=abacus"], ["device=abacus"]),
        (["calibrate=true"], ["calibrate=true", "split=val"]),
        (["calibrate=true", "split=val", "decoding.width=2"], ["calibrate=true", "decoding"]),
        (["calibrate=true", "split=val", "bfloat16=true"], ["calibrate=true", "bfloat16"]),
        (["calibrate=true", "split=val", "images=."], ["calibrate=true", "images"]),
        (["calibrate=true", "split=val", "views=[dark]"], ["calibrate=true", "views"]),
        (["calibrate=true", "split=val", "data=shapes"], ["calibrate=true", "other data"]),
    ],
)
def test_refused_with_a_checkpoint(shapes: Path, refused: Command, arguments: list[str], parts: list[str]) -> None:
    shutil.copytree(shapes / "cache", "cache")  # so that nothing is drawn and no progress printed
    message = refused(evaluate.main, f"checkpoint={shapes}/{BEST}", *arguments)
    assert [part for part in parts if part not in message] == []
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (
            {"_target_": "pathlib.Path.touch", "_args_": [{"_target_": "pathlib.Path", "_args_": ["sprung"]}]},
            ["names pathlib.Path.touch, which is no part of captioning"],
        ),
        ({"root": "../sprung"}, ["would have scenes drawn in", "outside of cache=."]),
        ({"root": "~/sprung"}, ["would have scenes drawn in", "outside of cache=."]),
    ],
)
def test_what_only_a_checkpoint_says_is_not_done(
    shapes: Path, refused: Command, change: dict[str, Any], parts: list[str]
) -> None:
    saved = torch.load(shapes / BEST, weights_only=True)
    del saved["digest"]
    data = saved["captioning"]["config"]["data"]
    data["reader"] = change if "_target_" in change else data["reader"] | change
    torch.save(with_digest(saved), "poisoned.ckpt")
    message = refused(evaluate.main, "checkpoint=poisoned.ckpt", "cache=.")
    assert [part for part in parts if part not in message] == []
    assert not Path(change.get("root", "sprung")).expanduser().exists()


def test_photographs_that_have_moved(elsewhere: Path, command: Command, refused: Command) -> None:
    flickr8k(elsewhere / "data")
    frozen = ["data=flickr8k", "data.root=data", "backbone=squeezenet1_1", "backbone.weights=null", "backbone.size=48"]
    train(elsewhere, *TINY, *frozen, "metrics.test=[BLEU]")
    run = elsewhere / "runs" / "flickr8k-spatial_transformer-seed1"
    checkpoint = f"checkpoint={run}/checkpoints/best.ckpt"
    Path("data").rename("moved")
    shutil.rmtree("cache")
    message = refused(evaluate.main, checkpoint, QUICK)
    assert "No such file or directory: data/dataset_flickr8k.json" in message
    assert "data.root" in message
    command(checkpoint, QUICK, "data.root=moved")
    assert read(elsewhere / "runs" / "evaluate")[2] == read(run)[2]
    built = [path.name for path in Path("cache").rglob("features.npy")]
    assert len(built) == 1  # of the test split alone

    path = Path("moved/dataset_flickr8k.json")
    path.write_text(path.read_text().replace("dog", "cat"))
    message = refused(evaluate.main, checkpoint, QUICK, "data.root=moved")
    assert "not the data set" in message
