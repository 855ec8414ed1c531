"""CHAIR by hand, and what names are taken for."""

import pytest
from refusals import refuses
from scored import compared

from captioning.metrics import ScoredImage, Scorer
from captioning.metrics.hallucination import Chair, mentions, names

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


TRUTH = dict(enumerate([{"dog", "person"}, {"bench"}, set(), {"cat", "car"}]))
REFERENCES = [["a man walks"], ["a bird sits on a seat", "pigeons"], ["grass"], ["a street"]]
IMAGES = [ScoredImage(number) for number in TRUTH]
CAPTIONS = [
    "a man, a dog and a cat with a dog",
    "two birds on a bench",
    "green grass",
    "a truck beside a truck",
]


def test_scores_by_hand():
    """Of eight mentions a cat and two trucks are not there; of six objects four are found."""
    scorer = Scorer(REFERENCES, [Chair(TRUTH)], images=IMAGES)
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


def test_other_categories_and_languages_are_refused():
    with refuses("hovercraft"):
        Chair({1: {"dog", "hovercraft"}})
    with refuses("English"):
        Chair({1: {"dog"}}, "de")
