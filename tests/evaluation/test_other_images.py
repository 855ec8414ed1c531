"""A checkpoint on other images than its own data's: folders, views, data sets, places."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from caption_files import annotations, results, table
from evaluating import AGAINST_TRAINING, BOTH, COUNTS, ENTROPY, QUICK, WORDING, read
from json_files import read_json, write_json
from pictures import noise
from PIL import Image
from support import captions_of

from captioning import evaluate, load

NAMES = ["a.png", "d.png", "sub/b.png", "sub/c.png"]
TOLD = {
    "a.png": ["A dog runs.", "Two dogs."],
    "sub/b.png": ["A dog, running", "a dog"],
    "sub/c.png": ["Two dogs are here."],
    "lost.png": ["Nobody has this photograph."],
}
"""Of the photographs in the folder all but `d.png`, and one more."""
LEARNT = {
    f"{i}.jpg": ["A dog runs .", "Two dogs .", f"{'a ' * 20}.".capitalize()] for i in range(6)
}
"""The captions of `flickr8k`."""


@pytest.fixture
def seen(cached_run, elsewhere):
    """The checkpoint of a frozen backbone, and a folder of noise, the size of the backbone's
    squares.
    """
    folder = elsewhere / "photographs"
    for seed, name in enumerate(NAMES):
        noise(folder / name, (48, 48), seed)
    (folder / "notes.txt").touch()
    return f"checkpoint={cached_run.checkpoint}"


def test_a_folder_without_references(cached_run, seen, command):
    Path("photographs/broken.jpg").write_bytes(b"\xff\xd8\xff no photograph")
    printed = command(seen, BOTH, "images=photographs")
    scores, provenance, lines = read("evaluate")
    captioner = load(cached_run.checkpoint)
    said = captioner.caption([Path("photographs") / name for name in NAMES])
    assert [line["image_id"] for line in lines] == [line["photograph"] for line in lines] == NAMES
    assert [line["caption"] for line in lines] == [each.caption for each in said]
    assert all(line["references"] == [] and "scores" not in line for line in lines)
    assert set(scores) == {*WORDING, "ended", *ENTROPY}
    assert scores["length"] == pytest.approx(sum(len(each.words) for each in said) / 4)
    assert 0 <= scores["first word entropy"] <= np.log(len(captioner.vocabulary.words) + 4)
    assert (provenance["images"], provenance["images_with_references"]) == (4, 0)
    assert "broken.jpg" in printed
    assert "\nBLEU" not in printed
    assert not Path("runs/evaluate/views.md").exists()


FORMS = "captions.csv", "coco.json"


def test_references_of_a_folder(seen, command):
    """As if the captions were scored alone, of those photographs that have references."""
    table("captions.csv", TOLD)
    images = [{"id": 70 + number, "file_name": name} for number, name in enumerate(TOLD)]
    texts = [
        {"image_id": image["id"], "caption": text}
        for image in images
        for text in TOLD[str(image["file_name"])]
    ]
    write_json("coco.json", {"images": images, "annotations": texts})
    found = []
    for form in FORMS:
        command(seen, BOTH, "images=photographs", f"references={form}", f"name={form}")
        scores, provenance, lines = read(form)
        unmatched = "photographs_without_references", "references_without_photograph"
        assert [provenance[key] for key in (*unmatched, *COUNTS)] == [1, 1, 4, 3, 0]
        by_name = {line["photograph"]: line for line in lines}
        bare = by_name.pop("d.png")
        assert (bare["image_id"], bare["references"], bare["scores"]) == ("d.png", [], {})
        assert by_name["sub/c.png"]["image_id"] == (72 if form == "coco.json" else "sub/c.png")
        captions = {name: (line["caption"], line["scores"]) for name, line in by_name.items()}
        found.append((scores, captions))
    assert found[0] == found[1]

    results("ours.json", {name: caption for name, (caption, _) in captions.items()})
    annotations("theirs.json", {name: TOLD[name] for name in captions})
    command("captions=ours.json", BOTH, "references=theirs.json", "name=alone")
    alone, _, rows = read("alone")
    shared = alone.keys() - WORDING
    assert {name: scores[name] for name in shared} == {name: alone[name] for name in shared}
    assert {row["image_id"]: (row["caption"], row["scores"]) for row in rows} == captions


def test_views_of_a_folder(seen, command):
    """One that leaves photographs of the backbone's size as they are, and one that does not."""
    table("captions.csv", TOLD)
    settings = [seen, BOTH, "images=photographs", "references=captions.csv"]
    command(*settings, "name=plain")
    printed = command(*settings, "corruptions=[full,png,dark]", "name=seen")
    plain = Path("runs/plain/captions.jsonl").read_bytes()
    for name in ("captions.jsonl", "captions-png.jsonl"):
        assert Path("runs/seen", name).read_bytes() == plain
    record = read_json("runs/seen/scores.json")
    assert list(record["views"]) == ["full", "png", "dark"]
    assert record["scores"] == read("plain")[0] == record["views"]["full"] == record["views"]["png"]
    dark = record["views"]["dark"]["word entropy"]
    assert dark != record["scores"]["word entropy"]
    rows = Path("runs/seen/views.md").read_text().splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    columns = ["view", "CIDEr", "repeated", "first word entropy", "word entropy"]
    assert [heading.split(" (")[0] for heading in cells[0]] == columns
    assert [row[0] for row in cells[2:]] == ["full", "png", "dark"]
    assert cells[-1][-1] == f"{dark:.2f}"
    assert rows[-1] in printed


def test_a_split_seen_through_a_view(cached_run, seen, command):
    """As the same photographs that were changed by hand."""
    data = f"data.root={cached_run.home}/data"
    command(seen, BOTH, data, "corruptions=[dark,full]", "name=seen")
    record = read_json("runs/seen/scores.json")
    assert record["scores"] == record["views"]["dark"]
    ours = read_json(cached_run.folder / "scores.json")["scores"]
    for name in ("CIDEr", "BLEU-4", "novel", "unseen pairs", *ENTROPY):
        assert record["views"]["full"][name] == pytest.approx(ours[name], abs=1e-4), name
    Path("dark").mkdir()
    with Image.open(cached_run.photographs[0]) as image:
        Image.fromarray((np.asarray(image) * 0.5).astype(np.uint8)).save("dark/5.png")
    command(seen, BOTH, data, "images=dark", "name=dark")
    assert [line["caption"] for line in read("seen")[2]] == [
        line["caption"] for line in read("dark")[2]
    ]
    for name in ("novel", "unseen pairs"):
        assert record["scores"][name] == read("dark")[0][name]
    assert record["scores"]["word entropy"] == pytest.approx(
        read("dark")[0]["word entropy"], rel=1e-3
    )


def test_another_data_set(cached_run, seen, command, refused):
    """The same photographs as the run's, in a table: its test split has the same caption."""
    shutil.copytree(cached_run.home / "data" / "images", "own/images")
    table("own/captions.txt", LEARNT)
    for split, names in {"train": ["4.jpg"], "val": ["3.jpg"], "test": ["5.jpg", "0.jpg"]}.items():
        Path("own", f"{split}.txt").write_text("\n".join(names))
    command(seen, BOTH, "data=csv", "data.root=own")
    scores, _, lines = read("evaluate")
    assert [line["image_id"] for line in lines] == ["5.jpg", "0.jpg"]
    assert lines[0]["caption"] == cached_run.captions[0]
    assert lines[0]["references"] == LEARNT["5.jpg"]
    assert not AGAINST_TRAINING & set(
        scores
    )  # the run's own data were in data, and are not below this folder
    assert "backbone" not in Path("runs/evaluate/config.yaml").read_text()
    assert "images" in refused(
        evaluate.main, seen, "data=csv", "data.root=own", "images=own/images"
    )


def test_a_test_set_without_captions_ends_in_results(cached_run, seen, command, refused):
    """Of VizWiz, whose training files are not there."""
    shutil.copytree(cached_run.home / "data" / "images", "own/test")
    images = [{"id": 7 + i, "file_name": f"{i}.jpg"} for i in (5, 0)]
    write_json("own/annotations/test.json", {"images": images})
    server = ["data.json=own/annotations/test.json", "data.images=own/test"]
    printed = command(seen, BOTH, "data=vizwiz", "data.root=own", *server, "results=ours.json")
    assert "captions are not scored" in printed
    assert "CIDEr" not in read("evaluate")[0]
    assert [entry["image_id"] for entry in read_json("ours.json")] == [12, 7]
    assert read_json("ours.json")[0]["caption"] == cached_run.captions[0]
    shutil.rmtree("runs/evaluate")
    assert "own" in refused(
        evaluate.main, seen, BOTH, "data=vizwiz", "data.root=own", *server, "results=own", out=None
    )
    assert len(Path("runs/evaluate/captions.jsonl").read_text().splitlines()) == 2  # not lost


def test_photographs_that_have_moved(cached_run, seen, command, refused):
    """And what is new in captions, where those of training are."""
    shutil.copytree(cached_run.home / "data", "moved")
    message = refused(evaluate.main, seen, QUICK)
    assert "No such file or directory: data/dataset_flickr8k.json" in message
    assert "data.root" in message
    command(seen, BOTH, "data.root=moved")
    assert read("evaluate")[2] == captions_of(cached_run.folder)
    built = [path.name for path in Path("cache").rglob("features.npy")]
    assert len(built) == 1  # of the test split alone

    path = Path("moved/dataset_flickr8k.json")
    path.write_text(path.read_text().replace("dog", "cat"))
    assert "not the data set" in refused(evaluate.main, seen, QUICK, "data.root=moved")


REFUSED = {
    "{cached} images=photographs corruptions=[full,sepia]": "corruptions[1]=sepia",
    "{cached} images=photographs references=no.json": "no.json",
    "{cached} images=photographs references=others.csv": "references=others.csv",
    "{cached} images=empty": "images=empty",
    "{cached} data=csv data.root=empty images=photographs": "images=FOLDER",
}


@pytest.mark.parametrize("arguments, key", REFUSED.items())
def test_refused(seen, refused, arguments, key):
    Path("empty").mkdir()
    Path("photographs/notes.txt").unlink()  # or a line tells that it is left out
    table("others.csv", {"elsewhere.png": ["A dog."]})
    assert key in refused(evaluate.main, *arguments.format(cached=seen).split())
    assert not Path("runs").exists()
