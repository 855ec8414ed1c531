"""The command on five images, with answers by hand, and on files that are not ours."""

import json
import re
from functools import partial
from pathlib import Path

import pytest
from caption_files import annotations, results
from json_files import read_json, write_json, write_lines
from pictures import plain
from written import write_run

from captioning.metrics.contrasts import BORROWED, IMAGES_ONLY
from captioning.metrics.wording import disagreements
from captioning.report.compare.__main__ import main
from captioning.runs.settings import FORMAT

OURS = {1: "a dog runs", 2: "a cat", 3: "a dog", 4: "two birds", 5: "A man."}
THEIRS = {1: "a cat on grass", 2: "a cat", 3: "a cat sits", 4: "Two birds!", 5: "a man"}
REFERENCES = {
    1: ["a dog is running", "the dog runs"],
    2: ["a cat sleeps"],
    3: ["the cat sits", "a cat"],
    4: ["two birds fly"],
    5: ["a man walks", "one man"],
}
QUICK = ["metrics=[BLEU,ROUGE-L,CIDEr]"]


def lines(path, captions, **fields):
    """A `captions.jsonl` with references, and further fields in the order of the captions."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    found = []
    for place, (i, text) in enumerate(captions.items()):
        more = {name: values[place] for name, values in fields.items()}
        found.append(
            json.dumps({"image_id": i, "caption": text, "references": REFERENCES[i], **more}) + "\n"
        )
    Path(path).write_text("".join(found))


@pytest.fixture(autouse=True)
def _files(elsewhere):
    results("ours.json", OURS)
    results("theirs.json", dict(reversed(THEIRS.items())))
    annotations("references.json", REFERENCES)
    annotations("more.json", REFERENCES | {6: [], 7: ["a bus"]})


@pytest.fixture
def command(printed):
    return partial(printed, main)


def record(folder="compare"):
    return read_json(Path(folder) / "compare.json")


def test_words_and_lengths_by_hand(command):
    said = command("ours.json", "theirs.json", "references=more.json", *QUICK)
    found = record()
    assert (found["images"], found["identical"]) == (5, 3)  # whatever their letters and full stops
    words = {
        word: (row["ours"], row["theirs"], row["difference"])
        for word, row in found["words"].items()
    }
    alone = {"grass": (0, 1, -1), "on": (0, 1, -1), "runs": (1, 0, 1), "sits": (0, 1, -1)}
    assert list(words.items()) == list(({"cat": (1, 3, -2), "dog": (2, 0, 2)} | alone).items())
    length = found["scores"]["length"]
    assert (length["ours"], length["theirs"]) == pytest.approx((11 / 5, 13 / 5))
    assert said.startswith(
        "A  ours (ours.json)\nB  theirs (theirs.json)\n5 images; the caption is the same for 3 of"
    )
    assert "words in captions of A alone, 2: dog 2, runs 1\n" in said
    assert "words in captions of B alone, 3: grass 1, on 1, sits 1\n" in said
    assert "CIDEr (x 100) is higher for A on 1 of 5 images" in said
    assert "A  ours" not in said.partition("image 1: +")[2]
    assert said.index("image 1: +") < said.index("image 3: -")


def test_settings_in_which_two_runs_differ(command):
    """What changes no result, such as the folder, is not among them."""
    for side, captions, rate in (("a", OURS, 0.001), ("b", THEIRS, 0.0003)):
        lines(f"{side}/captions.jsonl", captions)
        config = {"format": FORMAT, "seed": 1, "folder": side, "optimizer": {"lr": rate}}
        config |= {"model": {"score": {"width": 8, "bias": True}}} if side == "a" else {}
        config |= {"backbone": {"size": ord(side)}, "data": {"views": 1 if side == "a" else 2}}
        config |= {"trainer": {"max_epochs": ord(side)}}
        write_json(f"{side}/config.yaml", config)
    said = command("a", "b", *QUICK)
    # what makes a comparison unfair comes first
    settings = "data.views 1 | 2, optimizer.lr 0.001 | 0.0003, trainer.max_epochs 97 | 98, "
    settings += "backbone.size 97 | 98; and 2 of the model"
    assert f"settings that differ, A | B: {settings}\n" in said
    assert record()["settings"]["optimizer.lr"] == ["0.001", "0.0003"]
    assert "settings that differ" not in command("a", "a", *QUICK)


def test_a_score_of_ones_own_that_is_a_mean_and_a_difference_that_cannot_vary(command):
    """BLEU-4 is 0 for both, as no caption has four words of a reference in a row."""
    for side, captions, values in (
        ("a", OURS, (10, 20, 30, 40, 50)),
        ("b", THEIRS, (5, 5, 5, 5, 5)),
    ):
        own = [{"WordF1": float(value), "Harmonic": float(value)} for value in values]
        lines(f"{side}/captions.jsonl", captions, scores=own)
        scores = {"WordF1": sum(values) / 5, "Harmonic": 1.0}
        write_json(f"{side}/scores.json", {"scores": scores, "provenance": {}})
    said = command("a", "b", "metrics=[BLEU]")
    found = record()["scores"]
    assert (found["WordF1"]["ours"], found["WordF1"]["theirs"]) == pytest.approx((30, 5))
    assert found["WordF1"]["low"] > 0
    assert "Harmonic" not in found
    assert found["BLEU-4"]["p"] is None
    assert re.search(r"^BLEU-4 +0\.0 +0\.0 +\+0\.0$", said, re.M)
    assert re.search(r"^BLEU-1 .* [01]\.\d{3}$", said, re.M)
    family = sum("adjusted" in row for row in found.values())
    assert f"\nAfter Holm's correction for {family} scores, p is below 0.05 for" in said
    assert found["WordF1"]["adjusted"] == pytest.approx(family * found["WordF1"]["p"])


def test_main_scores_of_groups_have_intervals(command, refused):
    """A key of the references, or what the first file has recorded."""
    content = read_json("references.json")
    for image in content["images"]:
        image["place"] = "in" if image["id"] < 4 else "out"
    write_json("references.json", content)
    given = ["ours.json", "theirs.json", "metrics=[BLEU,ROUGE-L]"]
    said = command(*given, "references=references.json", "groups=place")
    found = record()["scores"]
    assert "\nROUGE-L: in (3 images)" in said
    inside = found["ROUGE-L: in (3 images)"]
    assert inside["low"] < inside["difference"] < inside["high"]
    assert "ROUGE-L: out (2 images)" in found
    assert "BLEU-1: in (3 images)" not in found
    assert "references" in refused(main, "groups=place", f"files=[{given[0]},{given[1]}]")
    lines("a/captions.jsonl", OURS, group=["in"] * 3 + ["out"] * 2)
    lines("b/captions.jsonl", THEIRS)
    command("a", "b", "metrics=[ROUGE-L]", "output=again")
    assert record("again")["scores"]["ROUGE-L: in (3 images)"] == inside | {
        "adjusted": record("again")["scores"]["ROUGE-L: in (3 images)"]["adjusted"]
    }


def test_chinese_by_character_as_a_run_has_recorded_it_or_by_settings(command):
    for side, caption in {"ours": "一只狗", "theirs": "一只猫"}.items():
        results(f"{side}.json", {1: caption, 2: "两个人"})
        Path(side).mkdir()
        entries = [{"image_id": 1, "caption": caption}, {"image_id": 2, "caption": "两个人"}]
        write_lines(f"{side}/captions.jsonl", entries)
        Path(f"{side}/config.yaml").write_text("data: {language: zh, tokens: characters}")
    annotations("references.json", {1: ["一只狗在跑。"], 2: ["两个人"]})
    chosen = ["references=references.json", "metrics=[BLEU,METEOR]"]
    command("ours.json", "theirs.json", *chosen, "language=zh", "tokens=characters")
    found = record()
    words = {word: (row["ours"], row["theirs"]) for word, row in found["words"].items()}
    assert words == {"狗": (1, 0), "猫": (0, 1)}
    assert found["scores"]["length"]["ours"] == pytest.approx(3)
    assert "bad_endings" not in found["scores"]
    command("ours", "theirs", *chosen)
    assert record()["words"] == found["words"]


def test_the_interval_of_a_word_is_that_of_the_exact_test():
    """Of the three images in which one side alone has it, two are ours."""
    ours, theirs = [["x", "y"], ["x"], [], ["x"], ["y"]], [[], ["x"], ["x"], [], []]
    found = disagreements(ours, theirs)
    assert list(found) == ["y", "x"]
    assert (found["x"].ours, found["x"].theirs, found["x"].difference) == (3, 2, 1)
    assert found["x"].p == 1
    assert found["y"].p == 0.5  # both of two
    assert (found["x"].adjusted, found["y"].adjusted) == (1, 1)  # two words


def test_training_variance_is_taken_from_a_sweep(command, refused):
    for number, captions in enumerate((OURS, THEIRS, OURS | {3: "a cat"}, THEIRS | {1: "a dog"})):
        model, seed = ("one", "two")[number % 2], number // 2
        write_run(Path("sweep"), model, seed, said=captions)
    files = ["ours.json", "theirs.json", "references=references.json", *QUICK]
    alone = command(*files)
    assert f"\n95 % intervals, {IMAGES_ONLY}; sweep=FOLDER" in alone
    high = record()["scores"]["CIDEr"]["high"]
    said = command(*files, "sweep=sweep")
    assert f"; a system of one run has the {BORROWED}\n" in said
    found = record()
    assert found["sweep"] == "sweep"
    assert {row["training"] for row in found["scores"].values() if "p" in row} == {BORROWED}
    assert found["scores"]["CIDEr"]["high"] != high
    write_run(Path("single"), "one", 1, said=OURS)
    for folder in ("single", "nowhere"):
        assert f"sweep={folder}" in refused(main, *files, f"sweep={folder}", out=None)


def test_scores_in_both_files_count_where_they_were_computed_alike(command):
    sides = {"a": (OURS, [70, 60, 80, 50, 40]), "b": (THEIRS, [60] * 5)}
    for run, (captions, spice) in sides.items():
        scores = [{"SPICE": value, "mine": 1.0} for value in spice]
        lines(f"runs/{run}/captions.jsonl", captions, scores=scores)
    said = command("runs/a", "runs/b", "metrics=[]", "score=SPICE")
    assert said.startswith("A  a (runs/a/captions.jsonl)\nB  b (runs/b/captions.jsonl)\n")
    row = record()["scores"]["SPICE"]
    assert (row["ours"], row["theirs"], row["difference"]) == pytest.approx((60, 60, 0))
    assert "mine" not in record()["scores"]  # it need not be a mean
    gaps = [line for line in said.splitlines() if line.startswith("image ")]
    assert gaps == ["image 3: +20.0", "image 1: +10.0", "image 5: -20.0", "image 4: -10.0"]
    for run, jar in (("a", "1.0"), ("b", "1.1")):
        signed = {"signatures": {"SPICE": f"SPICE|jar:{jar}"}}
        content = json.dumps({"scores": {}, "provenance": signed})
        Path("runs", run, "scores.json").write_text(content)
    command("runs/a", "runs/b/captions.jsonl", "metrics=[]")
    assert "SPICE" not in record()["scores"]


MINE = """
from captioning.metrics import Metric, MetricResult
from captioning.metrics.metric import ScoreType


class Ends(Metric):
    scores = (ScoreType("end is known"),)

    def compute(self, captions, references, images=None):
        pairs = zip(captions, references, strict=True)
        ends = [texts[0].split()[-1] in known[0].split() for texts, known in pairs]
        return MetricResult.from_means({"end is known": ends})


class Begins(Metric):
    def compute(self, captions, references, images=None):
        pairs = [(texts[0], known[0]) for texts, known in zip(captions, references, strict=True)]
        words = [text.split()[0] == known.split()[0] for text, known in pairs]
        letters = [text[0] == known[0] for text, known in pairs]
        return MetricResult.from_means({"first word": words, "first letter": letters})
"""


def test_a_metric_of_ones_own_may_give_several_scores(command, monkeypatch):
    """Whether it describes them or not; one that it describes may order the images."""
    Path("mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(".")
    metrics = "metrics=[ROUGE-L,mine.Begins,mine.Ends]"
    given = "ours.json", "theirs.json", "references=references.json", "score=end is known"
    said = command(*given, metrics)
    rows = record()["scores"]
    assert "\nend is known is higher for" in said
    names = "end is known", "first word", "first letter"
    found = {name: [rows[name]["ours"], rows[name]["theirs"]] for name in names}
    # "cat", "birds" and "man" are in the first references, and of the other side "sits" too
    expected = {"end is known": [60, 80], "first word": [80, 80], "first letter": [80, 80]}
    assert found == {name: pytest.approx(values) for name, values in expected.items()}


def test_photographs_are_named_by_the_annotations_and_equal_names_told_apart(command):
    plain("photographs/3.png")
    Path("b").mkdir()
    results("b/ours.json", THEIRS)
    more = ["references=references.json", "metrics=[]", "images=photographs"]
    said = command("ours.json", "b/ours.json", *more, "page.embed_mb=0")
    assert said.startswith("A  ours.json (ours.json)\nB  b/ours.json (b/ours.json)\n")
    assert len(list(Path("compare/photographs").glob("*.jpg"))) == 1


def test_what_cannot_be_compared_is_refused(refused, command):
    ask = partial(refused, main, out=None)
    lines("a.jsonl", OURS)
    lines("b.jsonl", dict(list(THEIRS.items())[:3]))
    results("others.json", {7: "a cat"})
    Path("c.jsonl").write_text(Path("a.jsonl").read_text().replace("the dog runs", "a dog walks"))
    for given, message in {
        "ours.json": "takes two run folders or files of captions",
        "files=5": "files",
        "ours.json theirs.json": "there are no references",
        "a.jsonl b.jsonl": "b.jsonl has no caption for 2 of 5 images: 4, 5.",
        "a.jsonl others.json common_only=true": "have no image in common",
        "a.jsonl c.jsonl": "a.jsonl and c.jsonl have different references",
        "a.jsonl theirs.json score=METEOR metrics=[ROUGE-L]": "captions have ROUGE-L, length",
        "a.jsonl theirs.json score=METEORS": "Did you mean METEOR?",
    }.items():
        assert message in ask(*given.split())
    said = command("a.jsonl", "b.jsonl", "common_only=true", *QUICK)
    assert said.splitlines()[2].startswith("3 images; ")
    command("ours.json", "theirs.json", "metrics=[]", "output=bare")
    assert set(record("bare")["scores"]) >= {"length", "vocabulary used"}
