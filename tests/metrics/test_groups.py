"""Scores of groups of images, from the statistics of all of them, against those of a part alone."""

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from scored import CANDIDATES, REFERENCES

from captioning.metrics import Scorer
from captioning.metrics.contrasts import compare, measure

GROUPS = ["near", "far", "near", "near", "far", "near"]
METRICS = ["BLEU", "ROUGE-L", "CIDEr"]
OTHERS = ["a dog", "people at a bus", "a bus", "a woman in a hat", "cat", "boats"]


@pytest.fixture(scope="module")
def scorer():
    return Scorer(REFERENCES, METRICS)


def of(group, values):
    return [value for own, value in zip(GROUPS, values, strict=True) if own == group]


def test_bleu_of_a_group_is_the_librarys_and_cider_averages_to_that_of_all(scorer):
    scores = scorer.score(dict(enumerate(CANDIDATES)))
    groups = scores.by_group(GROUPS)
    assert {name: found["images"] for name, found in groups.items()} == {
        "far (2 images)": 2,
        "near (4 images)": 4,
    }
    for label, found in groups.items():
        group = label.partition(" ")[0]
        references = dict(enumerate(of(group, scorer.tokenized_references)))
        captions = dict(enumerate([text] for text in scorer.tokenized(of(group, CANDIDATES))))
        corpus, _ = Bleu(4).compute_score(references, captions, verbose=0)
        assert [found[f"BLEU-{n}"] for n in range(1, 5)] == pytest.approx([100 * s for s in corpus])
    for name in ("CIDEr", "ROUGE-L"):
        mean = sum(found["images"] * found[name] for found in groups.values()) / len(GROUPS)
        assert mean == pytest.approx(scores.corpus[name])
    assert not scores.by_group([""] * len(GROUPS))


def test_intervals_of_a_group_are_those_of_its_images_alone(scorer):
    """By BLEU and ROUGE-L; CIDEr has the document frequencies of all images."""
    both = [scorer.score(dict(enumerate(texts))) for texts in (CANDIDATES, OTHERS)]
    whole = compare(*(measure([scores.statistics], GROUPS) for scores in both))
    alone = Scorer(of("near", REFERENCES), METRICS[:2])
    part = [alone.score(dict(enumerate(of("near", texts)))) for texts in (CANDIDATES, OTHERS)]
    expected = compare(*(measure([scores.statistics]) for scores in part))
    for name in ("BLEU-4", "ROUGE-L"):
        found = whole[f"{name}: near (4 images)"]
        assert (found.low, found.high) == pytest.approx((expected[name].low, expected[name].high))
    assert "CIDEr: far (2 images)" in whole
