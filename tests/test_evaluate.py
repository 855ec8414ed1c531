"""The command on files of captions and on the checkpoints of small runs, with their data and with
other photographs.
"""

import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from caption_files import annotations, instances, results, table
from json_files import read_json, write_json
from pictures import noise
from PIL import Image
from processes import run
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
from pycocotools.coco import COCO
from support import SHAPES, captions_of, contents, folder_of

from captioning import evaluate, load
from captioning.metrics.java import find_java
from captioning.metrics.meteor import process_of
from captioning.metrics.wording import wording
from captioning.runs.checkpoints.checkpoint import with_digest
from captioning.runs.evaluation import attention_file

REFERENCES = {
    31: ["A man's dog runs across the green field.", "The dog is running; it looks happy!"],
    7: [
        "Two well-dressed people are standing in front of a bus",
        'A "no parking" sign next to two people.',
    ],
    500: ["A RED double-decker bus drives down the street...", "red bus (London) on a street"],
    2: [
        "3 1/2 pizzas on a table at 7:30 p.m.",
        "Some pizza on a wooden table.",
        "Half-eaten pizza, $5.99",
    ],
    8: ["A café table with two croissants", "Two croissants on a plate in a café."],
}
OURS = {
    2: "Pizza on a table",
    7: "two people next to a sign",
    8: "croissants in a CAFÉ",
    31: "A dog is running.",
    500: "a bus",
}
BLEU = [f"BLEU-{n}" for n in range(1, 5)]
QUICK = "metrics=[BLEU]"
BOTH = "metrics=[BLEU,CIDEr]"
FILES = ["captions=ours.json", "references=references.json"]
WORDING = set(wording([["a", "dog"]]))
AGAINST_TRAINING, ENTROPY = {"novel", "unseen pairs"}, {"first word entropy", "word entropy"}
OF_WORDS = {*WORDING, "ended", *ENTROPY}
COUNTS = "images", "images_with_references", "captions_left_out"


@pytest.fixture
def command(printed):
    """Runs the command; gives what it prints."""
    return partial(printed, evaluate.main, "timeout=600")


@pytest.fixture(autouse=True)
def _files(elsewhere):
    results("ours.json", OURS)
    annotations("references.json", REFERENCES)


def read(name):
    """Scores, provenance and captions of a folder below `runs`."""
    record = read_json(Path("runs") / name / "scores.json")
    return record["scores"], record["provenance"], captions_of(Path("runs") / name)


def test_equal_to_pycocoevalcap_and_pycocotools(command, monkeypatch):
    """From the same files, read by COCO's own tools; METEOR is compared in tests/metrics."""
    monkeypatch.setenv("PATH", str(find_java().parent), prepend=os.pathsep)
    command(*FILES, "metrics=[ROUGE-L,CIDEr]")
    scores, _, lines = read("evaluate")

    coco = COCO("references.json")
    ids, given = coco.getImgIds(), coco.loadRes("ours.json")
    truth = PTBTokenizer().tokenize({i: coco.imgToAnns[i] for i in ids})
    candidates = PTBTokenizer().tokenize({i: given.imgToAnns[i] for i in ids})
    for name, scorer in {"ROUGE-L": Rouge(), "CIDEr": Cider()}.items():
        of_corpus, per_image = scorer.compute_score(truth, candidates)
        assert scores[name] == pytest.approx(100 * of_corpus, abs=1e-6), name
        theirs = {i: 100 * score for i, score in zip(ids, per_image, strict=True)}
        ours = {line["image_id"]: line["scores"][name] for line in lines}
        assert ours == pytest.approx(theirs, abs=1e-4), name


def test_scores_by_group_go_with_the_captions(command, refused):
    """A key of the references; what captions.jsonl has is scored again without it."""
    content = read_json("references.json")
    for image in content["images"]:
        image["domain"] = "people" if image["id"] in (2, 7) else "others"
    write_json("references.json", content)
    printed = command(*FILES, BOTH, "data.groups=domain")
    groups = read_json("runs/evaluate/scores.json")["groups"]
    assert {name: own["images"] for name, own in groups.items()} == {
        "others (3 images)": 3,
        "people (2 images)": 2,
    }
    assert f"{groups['people (2 images)']['CIDEr']:.1f}" in printed
    assert {line["image_id"]: line["group"] for line in read("evaluate")[2]} == {
        image: "people" if image in (2, 7) else "others" for image in REFERENCES
    }
    command("captions=runs/evaluate/captions.jsonl", BOTH)
    assert read_json("runs/evaluate-2/scores.json")["groups"] == groups
    assert "0 groups" in refused(
        evaluate.main, "captions=runs/evaluate/captions.jsonl", QUICK, "data.groups=place"
    )
    command("captions=runs/evaluate/captions.jsonl", BOTH, "data.groups=length", "name=length")
    assert all(name.startswith("third") for name in read_json("runs/length/scores.json")["groups"])


def test_leftovers_in_texts_are_told(command):
    """Markers of a tokenizer in captions, and a list that was written as one text in references."""
    assert "scored as they are" not in command(*FILES, QUICK)
    results("ours.json", OURS | {2: "<start> pizza on a table <end>"})
    annotations("references.json", REFERENCES | {7: [str(REFERENCES[7])]})
    said = command(*FILES, QUICK)
    assert "captions=ours.json, captions with markup, escapes or addresses: 1 of 5, such as" in said
    assert "references=references.json, captions that are a whole list" in said


def test_what_it_leaves_and_prints(command):
    results("ours.json", OURS | {2: "a 🍕\u2028on a table"})
    printed = command(*FILES, BOTH)
    folder = Path("runs/evaluate")
    files = {"config.yaml", "scores.json", "captions.jsonl"}
    assert {path.name for path in folder.iterdir()} == files
    scores, provenance, lines = read("evaluate")
    alone = {f"{name} (no brevity penalty)" for name in BLEU}
    assert set(scores) == {*BLEU, *alone, "CIDEr", *WORDING}
    assert {"commit", "versions", "tokenizer"} <= set(provenance)
    assert provenance["captions"]["file"] == "ours.json"
    assert [provenance[key] for key in COUNTS] == [5, 5, 0]
    assert [(line["image_id"], line["references"]) for line in lines] == list(REFERENCES.items())
    assert printed.startswith("images: 5\nrun folder: runs/evaluate\n")
    assert f"\nBLEU-4{scores['BLEU-4']:>33.1f}\n" in printed
    assert "image 31: A dog is running.\n" in printed

    # these captions have their references with them
    command("captions=runs/evaluate/captions.jsonl", BOTH)
    assert read("evaluate-2")[0] == scores
    again = Path("runs/evaluate-2/captions.jsonl").read_bytes()
    assert again == (folder / "captions.jsonl").read_bytes()


def test_another_language(command):
    results("ours.json", {1: "一只狗", 2: "两个人。"})
    annotations("references.json", {1: ["一只狗在跑。"], 2: ["两个人在海边"]})
    told = command(*FILES, "language=zh", "tokens=characters", "metrics=[BLEU,METEOR]")
    left_out = "scores left out, which are not made for language=zh: METEOR, bad_endings\n"
    assert told.startswith(f"images: 2\n{left_out}")
    scores, provenance, _ = read("evaluate")
    assert scores["length"] == 3
    assert provenance["tokenizer"] == "characters, language=zh"


def test_captions_of_the_next_image_and_of_some_images(command):
    ids = list(REFERENCES)
    moved = {here: OURS[there] for here, there in zip(ids, [*ids[1:], ids[0]], strict=True)}
    results("moved.json", moved)
    command(*FILES, "shuffled=true,false", QUICK, "-m")  # as a sweep
    command("captions=moved.json", "references=references.json", "name=moved", QUICK)
    assert captions_of(Path("runs/evaluate")) == captions_of(Path("runs/moved"))

    two = {31: OURS[31], 7: "people"}
    results("part.json", two | {99: "nobody asked", 98: "nor here"})
    files = ["captions=part.json", "references=references.json"]
    printed = command(*files, "common_only=true", QUICK, "name=part")
    assert "images: 2 of 5; 2 captions of captions=part.json left out\n" in printed
    scores, provenance, lines = read("part")
    assert [provenance[key] for key in COUNTS] == [2, 5, 2]
    results("two.json", two)
    annotations("two_references.json", {i: REFERENCES[i] for i in two})
    command("captions=two.json", "references=two_references.json", QUICK, "name=two")
    assert (read("two")[0], read("two")[2]) == (scores, lines)


def test_clip_scores(command):
    both = [*FILES, "embeddings=[ours.npz]", QUICK]
    command(*both)
    assert read("evaluate")[0]["CLIPScore"] is None
    texts = read_json("ours.texts.json")
    assert texts["ids"] == [*REFERENCES]
    given = {
        "images": np.tile([1.0, 0.0], (5, 1)),
        "captions": np.tile([0.4, (1 - 0.4**2) ** 0.5], (5, 1)),
        "references": np.tile([1.0, 0.0], (len(texts["references"]), 1)),
    }
    np.savez("ours.npz", **given, texts=texts["texts"], model="a model", cut=77)
    command(*both, "name=last")
    scores, provenance, _ = read("last")
    assert scores["CLIPScore"] == pytest.approx(100)
    assert provenance["signatures"]["CLIPScore"].startswith("CLIPScore|w:2.5|model:a model|")
    command(*both, "pac_s=true", "name=pac")
    scores, provenance, captions = read("pac")
    assert scores["PAC-S"] == pytest.approx(80)
    assert captions[0]["scores"]["RefPAC-S"] == pytest.approx(100 * 2 / (1 / 0.8 + 1 / 0.4))
    assert provenance["signatures"]["PAC-S"].startswith("PAC-S|w:2.0|model:a model|")


def test_objects_that_are_not_there(command):
    results("ours.json", OURS | {31: "a dog and a cat on a bench"})
    objects = {31: ["dog", "dog"], 7: [], 2: ["pizza"], 8: ["cup"], 500: ["car"], 99: ["zebra"]}
    instances("instances.json", objects)
    printed = command(*FILES, QUICK, "objects=instances.json")
    scores, provenance, _ = read("evaluate")
    # named are a dog, a cat, a bench, people, a pizza, a table and a bus, of which references add
    # people, bus and table
    assert (scores["CHAIRi"], scores["CHAIRs"]) == pytest.approx((100 * 2 / 7, 100 / 5))
    assert len(provenance["objects"]["sha256"]) == 64
    assert f"\nCHAIRi{scores['CHAIRi']:>33.1f}  %\n" in printed


def test_scores_are_kept_when_java_fails(command, monkeypatch):
    """Some references have words that Java should have tokenised."""
    monkeypatch.setenv("_JAVA_OPTIONS", "-XX:+NoSuchOption")
    process_of.cache_clear()  # else one that already runs would answer
    said = command(*FILES)
    scores, provenance, _ = read("evaluate")
    assert scores["METEOR"] is None
    assert scores["CIDEr"] > 1
    assert "unproved" in provenance["signatures"]["CIDEr"]
    assert said.count("no METEOR: ") == 1
    assert "PTB tokenizer" in said


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
    assert {"false captions", "objects left out"} <= scores.keys()
    assert all(line["hallucinated"] is not None for line in lines)
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
    metrics = "metrics=[diversity,CIDEr]"
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
    assert set(scores) == OF_WORDS
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


def test_a_test_set_without_captions_ends_in_results(cached_run, seen, command):
    """Of VizWiz, whose training files are not there."""
    shutil.copytree(cached_run.home / "data" / "images", "own/test")
    images = [{"id": 7 + i, "file_name": f"{i}.jpg"} for i in (5, 0)]
    write_json("own/annotations/test.json", {"images": images})
    server = ["data.json=own/annotations/test.json", "data.images=own/test", "results=ours.json"]
    printed = command(seen, BOTH, "data=vizwiz", "data.root=own", *server)
    assert "captions are not scored" in printed
    assert "CIDEr" not in read("evaluate")[0]
    assert [entry["image_id"] for entry in read_json("ours.json")] == [12, 7]
    assert read_json("ours.json")[0]["caption"] == cached_run.captions[0]


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
    "": "either checkpoint=FILE",
    "checkpoint=x.ckpt references=references.json": "references",
    "captions=ours.json": "ours.json",
    "captions=part.json references=references.json": "captions=part.json",
    "{files} metrics=[BLUE]": "metrics",
    "{files} images=.": "images",
    "{files} corruptions=[png]": "corruptions",
    "{files} clip=.": "clip",
    "{files} calibrate=true": "calibrate=true",
    "{files} tokens=characters": "tokens=characters",
    "{shapes} +data.reader.seed=5": "not the data set that the checkpoint was trained on",
    "{shapes} data.root=.": "data.root",
    "{shapes} language=de": "language",
    "{shapes} +data.tokens=words": "tokens",
    "{shapes} calibrate=true split=test": "calibrate=true",
    "{shapes} calibrate=true split=val decoding.width=2": "calibrate=true",
    "{shapes} calibrate=true split=val corruptions=[dark]": "calibrate=true",
    "{shapes} calibrate=true split=val data=shapes": "calibrate=true",
    "{cached} images=photographs corruptions=[full,sepia]": "corruptions[1]=sepia",
    "{cached} images=photographs references=no.json": "no.json",
    "{cached} images=photographs references=others.csv": "references=others.csv",
    "{cached} images=photographs objects=no.json": "objects",
    "{files} objects=references.json": "references.json",
    "{files} objects=instances.json": "instances.json",
    "{cached} images=empty": "images=empty",
    "{cached} data=csv data.root=empty images=photographs": "images=FOLDER",
}


@pytest.mark.parametrize("arguments, key", REFUSED.items())
def test_refused(shapes_run, seen, refused, arguments, key):
    results("part.json", {31: "a dog"})
    Path("empty").mkdir()
    table("others.csv", {"elsewhere.png": ["A dog."]})
    instances("instances.json", {31: ["dog"]})
    if "{shapes}" in arguments:  # so that nothing is drawn and no progress printed
        shutil.copytree(shapes_run.home / "cache", "cache")
    checkpoint = f"checkpoint={shapes_run.checkpoint}"
    given = arguments.format(files=" ".join(FILES), shapes=checkpoint, cached=seen)
    assert key in refused(evaluate.main, *given.split())
    assert not Path("runs").exists()
