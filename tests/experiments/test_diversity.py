"""Diversity of several captions of an image, by hand and by other formulas."""

import logging
import math
from collections import Counter

import numpy as np
import pytest
from metrics.scored import CANDIDATES, REFERENCES, compared

from captioning.metrics import Scorer
from experiments.diversity.metric import self_cider

METRIC = "experiments.diversity.metric.Diversity"
NAMES = ["distinct-1 (per image)", "distinct-2 (per image)"]
OTHERS = [["a b"], ["c d", "e"], ["f g h"]]  # references of other images


def test_by_hand_with_signature_and_interval():
    scorer = Scorer([["a dog"], ["a cat", "cats"]], [METRIC])
    scores = scorer.score({0: ["A dog runs.", "a dog"], 1: ["cats"]})
    # 3 words of 5, 2 pairs of 3; one word of two, since it is repeated, and no pair
    of_images = [[image[name] for name in NAMES] for image in scores.per_image]
    assert of_images == [pytest.approx([60, 200 / 3]), [50, 0]]
    assert [scores.corpus[name] for name in NAMES] == pytest.approx([55, 100 / 3])
    signature = "diversity|refs:1-2|lang:en|tok:PTB|n:2|df:2|pycocoevalcap:1.2"
    assert scorer.signatures == {"diversity": signature}
    others = scorer.score({0: ["a dog", "a dog"], 1: ["cats", "cats"]})
    found = compared(scores, others)[NAMES[0]]
    assert (found.ours, found.theirs) == pytest.approx((55, 50))


def test_bleu_of_captions_against_the_others():
    """One word of five differs: 4 of 5 words, 3 of 4 pairs, 2 of 3 and 1 of 2. The first caption is
    repeated up to the three of another image, and the copies are in each other.
    """
    one, other = "a b c d e", "a b c d f"
    near = (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)
    scores = Scorer([["x"]] * 3, [METRIC]).score(
        {0: [one, other], 1: [one, other, one], 2: [other]}
    )
    of_images = [image["mBLEU-4"] for image in scores.per_image]
    assert of_images == pytest.approx([100 * (2 + near) / 3] * 2 + [100])


def cosines(captions, references):
    """CIDEr / 10 of each caption with each other one, as Vedantam et al. write it."""

    def grams(text, n):
        words = text.split()
        return Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))

    kernel = np.zeros((len(captions),) * 2)
    for n in (1, 2, 3, 4):
        seen = [set().union(*(grams(text, n) for text in texts)) for texts in references]
        vectors = [
            {
                gram: count * math.log(len(seen) / max(1, sum(gram in image for image in seen)))
                for gram, count in grams(caption, n).items()
            }
            for caption in captions
        ]
        for i, one in enumerate(vectors):
            for j, other in enumerate(vectors):
                dot = sum(weight * other.get(gram, 0) for gram, weight in one.items())
                norms = math.hypot(*one.values()) * math.hypot(*other.values())
                kernel[i, j] += dot / norms / 4 if norms else 0
    return kernel


@pytest.mark.parametrize("captions", [CANDIDATES, REFERENCES[0], REFERENCES[3], REFERENCES[5]])
def test_self_cider_by_eigenvalues(captions):
    roots = np.sqrt(np.linalg.eigvalsh(cosines(captions, REFERENCES)).clip(0))
    expected = -math.log(roots[-1] / roots.sum(), len(captions))
    assert self_cider([captions], REFERENCES) == pytest.approx([expected], abs=1e-6)
    assert 0 < expected < 1


def test_ends_of_self_cider():
    """Of two captions with the cosine k, the eigenvalues are 1 + k and 1 - k. Words of all images
    have no weight; captions without words are equal.
    """
    same, two = ["a dog runs here"] * 3, ["a dog runs here", "two cats sit there"]
    near = ["a b c d e", "a b c d f"]
    k = cosines(near, OTHERS)[0, 1]
    share = math.sqrt(1 + k) / (math.sqrt(1 + k) + math.sqrt(1 - k))
    sets = [same, two, [*two, "some men walk far"], ["", ""], near, [*near, *near]]
    expected = [0, 1, 1, 0, -math.log2(share), -math.log(share, 4)]
    assert self_cider(sets, OTHERS) == pytest.approx(expected, abs=1e-12)
    assert np.isnan(self_cider([two], [["a dog"], ["a dog"]])).all()


def test_cider_of_the_best_caption_and_the_mean():
    """Images have one to three captions, of which the first is repeated up to three."""
    several = [[CANDIDATES[(i + k) % 6] for k in range(1 + i % 3)] for i in range(6)]
    found = Scorer(REFERENCES, [METRIC]).score(dict(enumerate(several))).per_image
    alone = Scorer(REFERENCES, ["CIDEr"])
    for image, texts in enumerate(several):
        ciders = [
            alone.score({i: text if i == image else "" for i in range(6)}).per_image[image]["CIDEr"]
            for text in texts
        ]
        ciders += ciders[:1] * (3 - len(texts))
        scores = [found[image][f"CIDEr ({which} of n)"] for which in ("best", "mean")]
        assert scores == pytest.approx([max(ciders), sum(ciders) / 3])


def test_one_caption_of_each_image_has_no_diversity(caplog):
    with caplog.at_level(logging.WARNING):
        scores = Scorer(REFERENCES, [METRIC]).score(dict(enumerate(CANDIDATES)))
    assert np.isnan([*scores.corpus.values()]).all()
    assert "decoding.n_best=5" in caplog.text
    assert not any(scores.per_image)
    assert not scores.statistics
