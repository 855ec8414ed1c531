"""BLEU from sums of per-image numbers, against the scorer itself on the same choice of images."""

import random

import pytest
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider import Cider as TheirCider
from pycocoevalcap.rouge.rouge import Rouge
from scored import CANDIDATES, CHOICES, REFERENCES, counts

from captioning.metrics.cider import Cider
from captioning.metrics.ngrams import Bleu, RougeL


@pytest.mark.parametrize("choice", CHOICES)
def test_bleu(choice):
    chosen = BleuScorer()
    for i in choice:
        chosen += (CANDIDATES[i], REFERENCES[i])
    expected, _ = chosen.compute_score(option="closest")
    chosen.special_reflen = 0  # no penalty, as in `captioning.metrics.ngrams.Bleu`
    without_penalty, _ = chosen.recompute_score(option="closest")
    found = Bleu().compute([[text] for text in CANDIDATES], REFERENCES)
    scores = found.statistics.scores(counts(choice, 6))[0]
    assert scores / 100 == pytest.approx([*expected, *without_penalty], abs=1e-11)


@pytest.mark.parametrize("metric", [Bleu(), Cider()])
def test_captions_scored_before_leave_nothing_behind(metric):
    """What is counted of references serves all captions."""
    ours, theirs = [[text] for text in CANDIDATES], [texts[-1:] for texts in REFERENCES]
    first = metric.compute(ours, REFERENCES)
    assert metric.compute(theirs, REFERENCES).corpus != first.corpus
    assert metric.compute(ours, REFERENCES).corpus == first.corpus
    assert metric.compute(ours, REFERENCES[::-1]).corpus != first.corpus


@pytest.mark.parametrize("ours, theirs", [(Cider(), TheirCider()), (RougeL(), Rouge())])
def test_captions_of_any_words_score_as_in_pycocoevalcap(ours, theirs):
    """Also words that no reference has, repeated ones, and captions without any."""
    draw = random.Random(0)

    def text(letters, shortest):
        return " ".join(draw.choice(letters) for _ in range(draw.randint(shortest, 9)))

    references = [[text("abcde", 1) for _ in range(draw.randint(1, 4))] for _ in range(60)]
    captions = [[text("abcdexyz", 0)] for _ in references]
    _, expected = theirs.compute_score(dict(enumerate(references)), dict(enumerate(captions)))
    scores = ours.compute(captions, references).per_image[ours.name]
    assert scores == pytest.approx(list(expected), abs=1e-12)
    assert len({*scores}) > 30
