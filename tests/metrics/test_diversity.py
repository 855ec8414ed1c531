"""Distinct words and pairs of several captions of an image."""

import pytest
from scored import compared

from captioning.metrics import Scorer

NAMES = ["distinct-1 (per image)", "distinct-2 (per image)"]


def test_by_hand_with_signature_and_interval() -> None:
    scorer = Scorer([["a dog"], ["a cat", "cats"]], ["diversity"])
    scores = scorer.score({0: ["A dog runs.", "a dog"], 1: ["cats"]})
    # 3 words of 5, 2 pairs of 3; one word, and no pair
    of_images = [[image[name] for name in NAMES] for image in scores.per_image]
    assert of_images == [pytest.approx([60, 200 / 3]), [100, 0]]
    assert [scores.corpus[name] for name in NAMES] == pytest.approx([80, 100 / 3])
    assert scorer.signatures == {"diversity": "diversity|refs:1-2|lang:en|tok:PTB"}
    others = scorer.score({0: ["a dog", "a dog"], 1: ["cats", "cats"]})
    found = compared(scores, others)[NAMES[0]]
    assert (found.ours, found.theirs) == pytest.approx((80, 50))
