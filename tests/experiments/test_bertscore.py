"""BERTScore against torchmetrics' own, and what it depends on."""

import pytest
from library_folders import bert
from refusals import refuses
from torchmetrics.functional.text.bert import bert_score

from captioning.metrics import Scorer
from captioning.metrics.table import build_metrics
from experiments.bertscore.metric import BASELINE, LAYER, MODEL, BertScore

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


@pytest.fixture(autouse=True)
def chosen(folder, monkeypatch):
    monkeypatch.setenv(MODEL, str(folder))
    monkeypatch.setenv(LAYER, "1")


@pytest.fixture(scope="module")
def expected(folder):
    """Of pairs, one at a time: of several, torchmetrics compares those of different images."""
    settings = {"model_name_or_path": str(folder), "num_layers": 1, "truncation": True}
    return [
        max(float(bert_score([caption], [text], **settings)["f1"]) for text in texts)
        for caption, texts in zip(CAPTIONS, REFERENCES, strict=True)
    ]


def test_each_image_has_that_of_torchmetrics(folder, expected):
    scorer = Scorer(REFERENCES, [BertScore()])
    scores = scorer.score(dict(enumerate(CAPTIONS)))
    assert [each["BERTScore"] / 100 for each in scores.per_image] == pytest.approx(
        expected, abs=1e-6
    )
    assert len({*expected}) == 5
    assert (expected[1], expected[2]) == (pytest.approx(1), 0)  # the same words, and none
    assert scores.corpus["BERTScore"] == pytest.approx(20 * sum(expected), abs=1e-4)
    signature = scorer.signatures["BERTScore"]
    assert f"|model:{folder.name}|layer:1|sha256:" in signature


def test_a_baseline_rescales(expected, monkeypatch):
    monkeypatch.setenv(BASELINE, "0.5")
    found = BertScore().compute([[text] for text in CAPTIONS], REFERENCES).per_image["BERTScore"]
    assert found == pytest.approx([2 * score - 1 for score in expected], abs=1e-6)


def test_a_layer_that_the_model_has_not(monkeypatch):
    monkeypatch.setenv(LAYER, "3")
    with refuses("BERTSCORE_LAYER=3"):
        BertScore().compute([["a"]], [["a"]])


@pytest.mark.parametrize("variable, value", [(LAYER, "0"), (LAYER, "x"), (BASELINE, "1")])
def test_variables_are_checked_before_a_caption_is_made(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    with refuses(variable):
        build_metrics(["experiments.bertscore.metric.BertScore"])
