"""The command on photographs that a checkpoint was not trained on, and on changed ones."""

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from processes import run as train
from support import LONGER, TINY, CachedRun, flickr8k, folder_of
from test_evaluate import annotations, read, results

from captioning import evaluate, load
from captioning.metrics.wording import wording
from captioning.runs.checkpoint import with_digest

SIZE = 48
"""Of the backbone's squares."""
METRICS = "metrics=[BLEU,CIDEr]"
AGAINST_TRAINING, ENTROPY = ("novel", "unseen pairs"), ("first word entropy", "word entropy")
WORDING = set(wording(["a dog"]))
OF_WORDS = {*WORDING, "ended", *ENTROPY}
REFERENCES = {
    "a.png": ["A dog runs.", "Two dogs."],
    "sub/b.png": ["A dog, running", "a dog"],
    "sub/c.png": ["Two dogs are here."],
    "lost.png": ["Nobody has this photograph."],
}
"""Of the photographs in the folder all but `d.png`, and one more."""
LEARNT = {f"{i}.jpg": ["A dog runs .", "Two dogs .", f"{'a ' * 20}.".capitalize()] for i in range(6)}
"""The captions of `miniature`."""
Command = Callable[..., str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a frozen backbone's captioner was trained on photographs, which are still there."""
    home = tmp_path_factory.mktemp("home")
    flickr8k(home / "data")
    frozen = ["data=flickr8k", "data.root=data", "backbone=squeezenet1_1", "backbone.weights=null"]
    ended = train(home, *TINY, *LONGER, *frozen, f"backbone.size={SIZE}", "optimizer.lr=0.01")
    folder_of(home, ended).rename(home / "run")
    return home


@pytest.fixture
def command(elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command in an empty folder; gives what it prints."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["captioning.evaluate", "timeout=600", METRICS, *arguments])
        evaluate.main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def photographs(elsewhere: Path) -> Path:
    """Noise, the size of the backbone's squares."""
    folder = elsewhere / "photographs"
    (folder / "sub").mkdir(parents=True)
    noise = np.random.default_rng(7).integers(0, 256, (4, SIZE, SIZE, 3), np.uint8)
    for name, pixels in zip(("a.png", "d.png", "sub/b.png", "sub/c.png"), noise, strict=True):
        Image.fromarray(pixels).save(folder / name)
    (folder / "notes.txt").touch()
    return folder


def coco(path: Path) -> Path:
    ids = {name: 70 + number for number, name in enumerate(REFERENCES)}
    texts = [{"image_id": ids[name], "caption": text} for name, each in REFERENCES.items() for text in each]
    images = [{"id": image_id, "file_name": name} for name, image_id in ids.items()]
    path.write_text(json.dumps({"images": images, "annotations": texts}))
    return path


def karpathy(path: Path) -> Path:
    """All in one split."""
    images = [
        {"filename": name, "split": "test", "sentences": [{"raw": text} for text in texts]}
        for name, texts in REFERENCES.items()
    ]
    path.write_text(json.dumps({"images": images}))
    return path


def table(path: Path, delimiter: str, references: dict[str, list[str]] = REFERENCES) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["image", "caption"])
        writer.writerows([name, text] for name, texts in references.items() for text in texts)
    return path


FORMS: dict[str, Callable[[Path], Path]] = {
    "coco.json": coco,
    "karpathy.json": karpathy,
    "captions.csv": lambda path: table(path, ","),
    "captions.tsv": lambda path: table(path, "\t"),
}


def test_a_folder_without_references(
    cached_run: CachedRun, photographs: Path, elsewhere: Path, command: Command
) -> None:
    (photographs / "broken.jpg").write_bytes(b"\xff\xd8\xff no photograph")
    printed = command(f"checkpoint={cached_run.checkpoint}", "images=photographs")
    folder = elsewhere / "runs" / "evaluate"
    scores, provenance, lines = read(folder)
    names = ["a.png", "d.png", "sub/b.png", "sub/c.png"]
    said = load(cached_run.checkpoint).caption([photographs / name for name in names])
    assert [line["image_id"] for line in lines] == [line["photograph"] for line in lines] == names
    assert [line["caption"] for line in lines] == [each.caption for each in said]
    assert all(line["references"] == [] and "scores" not in line for line in lines)
    assert set(scores) == OF_WORDS  # the data set is gone, so that nobody knows what is new
    assert scores["length"] == pytest.approx(sum(len(each.words) for each in said) / 4)
    assert 0 <= scores["first word entropy"] <= np.log(len(load(cached_run.checkpoint).vocabulary.words) + 4)
    assert (provenance["images"], provenance["images_with_references"]) == (4, 0)
    assert "broken.jpg" in printed
    assert "no novel and unseen pairs" in printed
    assert "\nBLEU" not in printed
    assert not (folder / "views.md").exists()


@pytest.mark.parametrize("name", FORMS)
def test_references_of_every_form(
    name: str, cached_run: CachedRun, photographs: Path, elsewhere: Path, command: Command
) -> None:
    """As if the captions were scored alone, of those photographs that have references."""
    file = FORMS[name](elsewhere / name)
    printed = command(f"checkpoint={cached_run.checkpoint}", "images=photographs", f"references={file}")
    scores, provenance, lines = read(elsewhere / "runs" / "evaluate")
    counts = "photographs_without_references", "references_without_photograph", "images", "images_with_references"
    assert [provenance[key] for key in counts] == [1, 1, 4, 3]
    assert "d.png" in printed
    by_name = {line["photograph"]: line for line in lines}
    assert by_name["d.png"] == {**by_name["d.png"], "image_id": "d.png", "references": [], "scores": {}}
    assert by_name["sub/c.png"]["image_id"] == (72 if name == "coco.json" else "sub/c.png")

    scored = {line["image_id"]: line["caption"] for line in lines if line["references"]}
    references = {by_name[name]["image_id"]: texts for name, texts in REFERENCES.items() if name in by_name}
    results("ours.json", scored)
    command("captions=ours.json", f"references={annotations('theirs.json', references)}", "name=alone")
    alone, _, rows = read(elsewhere / "runs" / "alone")
    assert {key: value for key, value in scores.items() if key not in OF_WORDS} == {
        key: value for key, value in alone.items() if key not in WORDING
    }
    assert {row["image_id"]: row["scores"] for row in rows} == {
        line["image_id"]: line["scores"] for line in lines if line["references"]
    }


def test_against_others_only_what_has_references(
    cached_run: CachedRun, photographs: Path, elsewhere: Path, command: Command
) -> None:
    file = table(elsewhere / "captions.csv", ",")
    settings = [f"checkpoint={cached_run.checkpoint}", "images=photographs", f"references={file}"]
    command(*settings)
    command(*settings, "against=runs/evaluate/captions.jsonl", "bootstrap.samples=10", "name=again")
    record = json.loads((elsewhere / "runs" / "again" / "comparison.json").read_text())
    assert record["images"] == 3
    assert all(row["difference"] == 0 for row in record["scores"].values())


def test_what_is_new_where_the_captions_of_training_are(home: Path, photographs: Path, command: Command) -> None:
    """Their photographs need not be there."""
    Path("learnt").mkdir()
    shutil.copy(home / "data" / "dataset_flickr8k.json", "learnt")
    checkpoint = f"checkpoint={home}/run/checkpoints/best.ckpt"
    command(checkpoint, "images=photographs", "data.root=learnt")
    scores, _, lines = read(Path("runs/evaluate"))
    assert set(scores) == OF_WORDS | set(AGAINST_TRAINING)
    learnt = {"a dog runs", "two dogs", " ".join(["a"] * 20)}
    novel = sum(line["caption"] not in learnt for line in lines)
    assert scores["novel"] == pytest.approx(100 * novel / len(lines))


def test_views_of_a_folder(cached_run: CachedRun, photographs: Path, elsewhere: Path, command: Command) -> None:
    """One that leaves photographs of the backbone's size as they are, and one that does not."""
    settings = [f"checkpoint={cached_run.checkpoint}", "images=photographs"]
    settings.append(f"references={table(elsewhere / 'captions.csv', ',')}")
    command(*settings, "name=plain")
    printed = command(*settings, "views=[full,png,dark]", "name=seen")
    plain, seen = elsewhere / "runs" / "plain", elsewhere / "runs" / "seen"
    assert (seen / "captions.jsonl").read_bytes() == (plain / "captions.jsonl").read_bytes()
    assert (seen / "captions-png.jsonl").read_bytes() == (plain / "captions.jsonl").read_bytes()
    record = json.loads((seen / "scores.json").read_text())
    assert "views" not in json.loads((plain / "scores.json").read_text())
    assert list(record["views"]) == ["full", "png", "dark"]
    assert record["scores"] == read(plain)[0] == record["views"]["full"] == record["views"]["png"]
    dark = record["views"]["dark"]
    assert dark["word entropy"] != record["scores"]["word entropy"]
    head, _, *rows = (seen / "views.md").read_text().splitlines()[2:]
    assert [cell.split(" (")[0].strip() for cell in head.split("|")[1:-1]] == [
        "view",
        "CIDEr",
        "repeated",
        "first word entropy",
        "word entropy",
    ]
    assert [row.split("|")[1].strip() for row in rows] == ["full", "png", "dark"]
    assert rows[2].split("|")[-2].strip() == f"{dark['word entropy']:.2f}"
    assert rows[2] in printed


def test_a_split_seen_through_a_view(home: Path, elsewhere: Path, command: Command) -> None:
    """As the same photographs that were changed by hand."""
    checkpoint = f"checkpoint={home}/run/checkpoints/best.ckpt"
    data = f"data.root={home}/data"
    command(checkpoint, data, "views=[dark,full]", "name=seen")
    record = json.loads(Path("runs/seen/scores.json").read_text())
    assert record["scores"] == record["views"]["dark"]
    ours = json.loads((home / "run" / "scores.json").read_text())["scores"]
    for name in ("CIDEr", "BLEU-4", "novel", "unseen pairs", *ENTROPY):
        assert record["views"]["full"][name] == pytest.approx(ours[name], abs=1e-4), name
    Path("dark").mkdir()
    with Image.open(home / "data" / "images" / "5.jpg") as image:
        Image.fromarray((np.asarray(image) * 0.5).astype(np.uint8)).save("dark/5.png")
    command(checkpoint, data, "images=dark", "name=dark")
    lines, expected = (read(Path("runs") / name)[2] for name in ("seen", "dark"))
    assert [line["caption"] for line in lines] == [line["caption"] for line in expected]
    found = json.loads(Path("runs/dark/scores.json").read_text())["scores"]
    assert record["scores"]["word entropy"] == pytest.approx(found["word entropy"], rel=1e-3)


def test_another_data_set(home: Path, elsewhere: Path, command: Command, refused: Command) -> None:
    """The same photographs as the run's, in a table: its test split has the same caption."""
    shutil.copytree(home / "data" / "images", "own/images")
    table(Path("own/captions.txt"), ",", LEARNT)
    for split, names in {"train": ["4.jpg"], "val": ["3.jpg"], "test": ["5.jpg", "0.jpg"]}.items():
        Path("own", f"{split}.txt").write_text("\n".join(names))
    checkpoint = f"checkpoint={home}/run/checkpoints/best.ckpt"
    command(checkpoint, "data=csv", "data.root=own")
    scores, _, lines = read(elsewhere / "runs" / "evaluate")
    (mine,) = [json.loads(line) for line in (home / "run" / "captions.jsonl").read_text().splitlines()]
    assert [line["image_id"] for line in lines] == ["5.jpg", "0.jpg"]
    assert lines[0]["caption"] == mine["caption"]
    assert lines[0]["references"] == LEARNT["5.jpg"]
    assert not set(AGAINST_TRAINING) & set(scores)  # the run's own data were in data, and are not below this folder
    assert "backbone" not in (elsewhere / "runs" / "evaluate" / "config.yaml").read_text()
    assert "images" in refused(evaluate.main, checkpoint, "data=csv", "data.root=own", "images=own/images")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["images=photographs", "views=[full,sepia]"], ["views[1]=sepia", "'full', 'png'"]),
        (["images=photographs", "views=[]"], ["views=[]"]),
        (["images=photographs", "views=[png,png]"], ["views=", "twice"]),
        (["images=nothing"], ["images=nothing"]),
        (["images=photographs/a.png"], ["images=photographs/a.png"]),
        (["images=empty"], ["no photographs in images=empty"]),
        (["images=photographs", "references=no.json"], ["no.json"]),
        (["images=photographs", "references=others.csv"], ["references=others.csv", "no photograph in common"]),
        (["images=photographs", "against=ours.json"], ["against", "references=FILE"]),
        (["references=others.csv"], ["leave references out", "images=FOLDER"]),
        (["images=photographs", "data.root=empty"], ["empty/dataset_flickr8k.json"]),
        (["images=photographs", "calibrate=true", "split=val"], ["calibrate=true", "images"]),
        (["captions=ours.json"], ["either checkpoint=FILE"]),
    ],
)
def test_refused(
    cached_run: CachedRun, photographs: Path, refused: Command, arguments: list[str], parts: list[str]
) -> None:
    Path("empty").mkdir()
    table(Path("others.csv"), ",", {"elsewhere.png": ["A dog."]})
    results("ours.json", {"a.png": "a dog"})
    message = refused(evaluate.main, f"checkpoint={cached_run.checkpoint}", *arguments)
    assert [part for part in parts if part not in message] == []
    assert not Path("runs").exists()


@pytest.mark.parametrize("setting", ["images=.", "views=[png]"])
def test_captions_of_a_file_are_of_no_photographs(elsewhere: Path, refused: Command, setting: str) -> None:
    results("ours.json", {1: "a dog"})
    assert "checkpoint=FILE" in refused(evaluate.main, "captions=ours.json", "references=ours.json", setting)


@pytest.mark.parametrize("setting", ["images=photographs", "views=[full,png]"])
def test_features_from_elsewhere_have_no_photographs(
    cached_run: CachedRun, photographs: Path, refused: Command, setting: str
) -> None:
    """Alone, and in an ensemble with a network that sees."""
    saved: dict[str, Any] = torch.load(cached_run.checkpoint, weights_only=True)
    config, state = saved["captioning"]["config"], saved["state_dict"]
    config["backbone"] = {"_target_": "captioning.backbones.precomputed.Precomputed", "path": "none", "dim": 512}
    saved["state_dict"] = {
        key: value for key, value in state.items() if not key.startswith("backbone.") or key == "backbone.scale"
    }
    del saved["digest"]
    torch.save(with_digest(saved), "features.ckpt")
    for checkpoint in ("checkpoint=features.ckpt", f"decoding.ensemble=[{cached_run.checkpoint},features.ckpt]"):
        assert "backbone=features" in refused(evaluate.main, checkpoint, setting)
