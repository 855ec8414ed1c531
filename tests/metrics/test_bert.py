"""BERTScore against torchmetrics' own, and what it depends on."""

import pytest
from library_folders import bert
from refusals import refuses
from torchmetrics.functional.text.bert import bert_score

from captioning.metrics import Scorer
from captioning.metrics.bert import BertScore

CAPTIONS = ["a dog runs on the grass", "a man", "", "the red ball", "a man plays with a ball"]
REFERENCES = [
    ["a dog plays", "the dog runs on grass"],
    ["a man plays with the ball", "a man", "red"],
    ["a dog"],
    ["a red ball"],
    ["the man plays with a red ball on the grass"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    bert(folder)
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """Of pairs, one at a time: of several, torchmetrics compares those of different images."""
    settings = {"model_name_or_path": str(folder), "num_layers": 1, "truncation": True}
    return [
        max(float(bert_score([caption], [text], **settings)["f1"]) for text in texts)
        for caption, texts in zip(CAPTIONS, REFERENCES, strict=True)
    ]


def test_each_image_has_that_of_torchmetrics(folder, expected):
    scorer = Scorer(REFERENCES, [BertScore(model=folder, layer=1)])
    scores = scorer.score(dict(enumerate(CAPTIONS)))
    assert [each["BERTScore"] / 100 for each in scores.per_image] == pytest.approx(
        expected, abs=1e-6
    )
    assert len({*expected}) == 5
    assert (expected[1], expected[2]) == (pytest.approx(1), 0)  # the same words, and none
    assert scores.corpus["BERTScore"] == pytest.approx(20 * sum(expected), abs=1e-4)
    signature = scorer.signatures["BERTScore"]
    assert f"|model:{folder.name}|layer:1|sha256:" in signature


def test_a_baseline_rescales(folder, expected):
    metric = BertScore(model=folder, layer=1, baseline=0.5)
    found = metric.compute([[text] for text in CAPTIONS], REFERENCES).per_image["BERTScore"]
    assert found == pytest.approx([2 * score - 1 for score in expected], abs=1e-6)


def test_a_layer_that_the_model_has_not(folder):
    with refuses("layer=3"):
        BertScore(model=folder, layer=3).compute([["a"]], [["a"]])
