"""Files of captions against files of references, without a model."""

import os
from pathlib import Path

import pytest
from caption_files import annotations, results
from evaluating import (
    BLEU,
    BOTH,
    COUNTS,
    FILES,
    OURS,
    QUICK,
    REFERENCES,
    WORDING,
    read,
)
from json_files import read_json, write_json
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
from pycocotools.coco import COCO
from support import captions_of

from captioning import evaluate
from captioning.metrics.java import find_java
from captioning.metrics.meteor import process_of


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


REFUSED = {
    "": "either checkpoint=FILE",
    "checkpoint=x.ckpt references=references.json": "references",
    "captions=ours.json": "ours.json",
    "captions=part.json references=references.json": "captions=part.json",
    "{files} metrics=[BLUE]": "metrics",
    "{files} images=.": "images",
    "{files} corruptions=[png]": "corruptions",
    "{files} calibrate=true": "calibrate=true",
    "{files} tokens=characters": "tokens=characters",
}


@pytest.mark.parametrize("arguments, key", REFUSED.items())
def test_refused(refused, arguments, key):
    results("part.json", {31: "a dog"})
    assert key in refused(evaluate.main, *arguments.format(files=" ".join(FILES)).split())
    assert not Path("runs").exists()
