"""CHAIR by hand, and what names are taken for."""

from pathlib import Path

import pytest
from caption_files import annotations, instances, results
from evaluation.evaluating import FILES, OURS, REFERENCES, read
from json_files import read_json
from metrics.scored import compared

from captioning import evaluate
from captioning.metrics import ScoredImage, Scorer
from captioning.report.compare.__main__ import main as compare
from experiments.chair.metric import OBJECTS, mentions, names

READ = {
    "A man and two women ride buses, ponies and motorbikes.": [
        "person",
        "person",
        "bus",
        "horse",
        "motorcycle",
    ],
    "Knives, mice, geese & sheep on benches": ["knife", "mouse", "bird", "sheep", "bench"],
    "The man's dog eyes a chili dog and HOT-DOGS": ["person", "dog", "hot dog", "hot dog"],
    "A toilet seat beside rolls of toilet paper": ["toilet"],
    "teddy bears, a polar bear and a chair": ["teddy bear", "bear", "chair"],
    "A train crosses the train tracks at a train station": ["train"],
    "men in ties and bow ties learning to tie a tie": ["person", "tie", "tie"],
    "An orange cat on an orange couch beside three oranges": ["cat", "couch", "orange"],
    "a baby elephant and its mother; a baby": ["elephant", "person", "person"],
    "a mother giraffe watches a child pet a dog": ["giraffe", "person", "dog"],
    "People horseback riding past a bed of flowers": ["person", "horse"],
    "A pitcher of water with carrot cake and apple pie": ["cake"],
    "busses, couches, toothbrushes, puppies, firemen, boxcars": [
        "bus",
        "couch",
        "toothbrush",
        "dog",
        "person",
        "train",
    ],
    "": [],
    "Ein Hund läuft \U0001f415": [],
}


@pytest.mark.parametrize("caption, expected", READ.items())
def test_what_a_caption_names(caption, expected):
    assert mentions(caption) == expected


def test_names_are_of_eighty_categories_and_each_of_one():
    categories = {*names().values()} - {"none"}
    assert len(categories) == 80
    for category in categories:
        assert mentions(f"one {category} here") == ([category] if category != "orange" else [])
    for name, category in names().items():
        assert mentions(" ".join(name)) == ([] if category == "none" else [category])


TRUTH = {1: ["dog", "person"], 2: ["bench"], 3: [], 4: ["cat", "car"], 99: ["zebra"]}
TEXTS = [["a man walks"], ["a bird sits on a seat", "pigeons"], ["grass"], ["a street"]]
IMAGES = [ScoredImage(number) for number in (1, 2, 3, 4)]
CAPTIONS = [
    "a man, a dog and a cat with a dog",
    "two birds on a bench",
    "green grass",
    "a truck beside a truck",
]
METRIC = "experiments.chair.metric.Chair"


@pytest.fixture(autouse=True)
def _objects(elsewhere, monkeypatch):
    monkeypatch.setenv(OBJECTS, "instances.json")
    instances("instances.json", TRUTH)


def test_scores_by_hand():
    """Of eight mentions a cat and two trucks are not there; of six objects four are found."""
    scorer = Scorer(TEXTS, [METRIC], images=IMAGES)
    scores = scorer.score(dict(enumerate(CAPTIONS)))
    names = ("CHAIRi", "CHAIRs", "object recall")
    rates = (100 * 3 / 8, 50, 100 * 4 / 6)
    assert scores.corpus == pytest.approx(dict(zip(names, rates, strict=True)))
    assert scores.hallucinated == [["cat"], [], [], ["truck"]]
    in_images = [25, 0, float("nan"), 100]
    assert [image["CHAIRi"] for image in scores.per_image] == pytest.approx(in_images, nan_ok=True)

    part = {0: "a man and a dog", 1: "a bench with a bird", 3: "a cat and a car"}
    assert scorer.score(part).corpus == {"CHAIRi": 0, "CHAIRs": 0, "object recall": 100}
    assert scorer.score({2: "grass"}).corpus == {"CHAIRs": 0}
    others = scorer.score(dict.fromkeys(range(4), "a man and a dog"))
    found = compared(scores, others)["CHAIRi"]
    assert found.difference == pytest.approx(100 * (3 / 8 - 6 / 8))


def test_what_its_scores_depend_on_is_in_the_signature():
    (signature,) = Scorer(TEXTS, [METRIC], images=IMAGES).signatures.values()
    instances("instances.json", TRUTH | {99: ["horse"]})
    (other,) = Scorer(TEXTS, [METRIC], images=IMAGES).signatures.values()
    fields, others = signature.split("|"), other.split("|")
    differing = [one for one, two in zip(fields, others, strict=True) if one != two]
    assert [field.partition(":")[0] for field in differing] == ["objects"]


def test_without_its_file_and_in_other_languages_it_is_refused(monkeypatch, refused):
    results("ours.json", OURS)
    annotations("references.json", REFERENCES)
    given = [*FILES, f"metrics=[{METRIC}]"]
    assert "English" in refused(evaluate.main, *given, "language=de")
    monkeypatch.setenv(OBJECTS, "absent.json")
    assert "absent.json" in refused(evaluate.main, *given)
    monkeypatch.delenv(OBJECTS)
    assert OBJECTS in refused(evaluate.main, *given)


@pytest.mark.parametrize(
    "objects, named",
    [
        ({31: ["dog", "hovercraft"], 7: [], 2: [], 8: [], 500: []}, "hovercraft"),
        ({31: ["dog"]}, "4 images"),
        (None, "instances_*.json"),
    ],
)
def test_another_file_gives_no_score(objects, named, printed):
    """The other scores are there, and a line says why."""
    results("ours.json", OURS)
    annotations("references.json", REFERENCES)
    if objects:
        instances("instances.json", objects)
    else:
        annotations("instances.json", REFERENCES)
    said = printed(evaluate.main, *FILES, f"metrics=[BLEU,{METRIC}]")
    scores, _, _ = read("evaluate")
    assert (scores["CHAIRi"], scores["BLEU-1"] > 0) == (None, True)
    (line,) = [line for line in said.splitlines() if line.startswith("no CHAIR: ")]
    assert named in line


def test_in_an_evaluation(printed):
    results("ours.json", OURS | {31: "a dog and a cat on a bench"})
    annotations("references.json", REFERENCES)
    objects = {31: ["dog", "dog"], 7: [], 2: ["pizza"], 8: ["cup"], 500: ["car"], 99: ["zebra"]}
    instances("instances.json", objects)
    printed(evaluate.main, *FILES, f"metrics=[BLEU,{METRIC}]")
    scores, provenance, lines = read("evaluate")
    # named are a dog, a cat, a bench, people, a pizza, a table and a bus, of which references add
    # people, bus and table
    assert (scores["CHAIRi"], scores["CHAIRs"]) == pytest.approx((100 * 2 / 7, 100 / 5))
    assert provenance["signatures"]["CHAIR"].startswith("CHAIR|truth:instances")
    found = {line["image_id"]: line["hallucinated"] for line in lines}
    assert found == {image: [] for image in OURS} | {31: ["cat", "bench"]}


def test_in_a_comparison(printed):
    """Of five images one of either side names what neither its references nor its annotations
    have.
    """
    ours = {1: "a dog runs", 2: "a cat", 3: "a dog", 4: "two birds", 5: "A man."}
    theirs = {1: "a cat on grass", 2: "a cat", 3: "a cat sits", 4: "Two birds!", 5: "a man"}
    known = {
        1: ["a dog is running", "the dog runs"],
        2: ["a cat sleeps"],
        3: ["the cat sits", "a cat"],
        4: ["two birds fly"],
        5: ["a man walks", "one man"],
    }
    results("ours.json", ours)
    results("theirs.json", theirs)
    annotations("references.json", known)
    instances("instances.json", {i: ["bus"] if i == 5 else [] for i in known})
    given = ["ours.json", "theirs.json", "references=references.json"]
    said = printed(compare, *given, f"metrics=[ROUGE-L,{METRIC}]", "score=object recall")
    found = read_json(Path("compare") / "compare.json")
    assert {name: row["difference"] for name, row in found["hallucinated"].items()} == {
        "cat": -1,
        "dog": 1,
    }
    shares = found["scores"]["CHAIRs"]
    assert (shares["ours"], shares["theirs"]) == pytest.approx((20, 20))
    assert found["signatures"]["CHAIR"] in said
    recall = "object recall is higher for A on 1 of 5 images, most of all on"
    assert f"{recall}\n\nimage 1: +100.00\n" in said
    assert "hallucinated in captions of A alone, 1: dog 1\n" in said
