"""Corpus scores from sums of per-image numbers, against the scorers themselves on the same choice
of images.
"""

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu_scorer import BleuScorer

from captioning.metrics.meteor import Meteor
from captioning.metrics.statistics import Statistics, bleu_statistics

REFERENCES = [
    ["a dog runs across the green field", "the dog is running it looks happy", "a dog outside"],
    ["two well-dressed people are standing in front of a bus"],
    ["a red bus drives down the street", "the bus big and red"],
    [
        "children playing with a kite on the beach",
        "kids fly kites near the sea",
        "a beach with a kite",
    ],
    ["the cat"],
    ["boats in the harbour at sunset", "the sun is setting over a harbor full of boats"],
]
CANDIDATES = [
    "a canine is jogging quickly over fields",  # synonyms, stems, paraphrases
    "",
    "a red bus drives down the street",  # a reference, whole
    "kite the on beach children",
    "quantum physics",  # no match
    "boats boats boats in the harbor",
]
DOG = ["a dog runs on the beach", "the dog is running"]
LONG = " ".join(f"word{i % 50}" for i in range(5000))
AWKWARD = [
    *(
        "",
        "\U0001f600",
        "\ud800",
        "||||",
        "a dog ||| runs",
        "a dog\nruns",
        "a\x00\x0b\x1b dog\r\nruns",
        LONG,
    ),
    "a dog runs",
]
CHOICES = {
    "each once": range(6),
    "repeated": [0, 0, 3, 5, 5, 5, 2],
    "only whole matches": [2, 2],
    "one whole match among others": [2, 3],
    "no match": [4, 1],
    "empty": [1, 1],
    "a single one": [3],
}


def counts(choice) -> np.ndarray:
    return np.bincount(list(choice), minlength=6).astype(float)[None]


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES.keys())
def test_bleu(choice):
    every, chosen = BleuScorer(), BleuScorer()
    for scorer, images in ((every, range(6)), (chosen, choice)):
        for i in images:
            scorer += (CANDIDATES[i], REFERENCES[i])
    expected, _ = chosen.compute_score(option="closest")
    chosen.special_reflen = 0  # no penalty, as in `captioning.metrics.statistics.bleu`
    without_penalty, _ = chosen.recompute_score(option="closest")
    statistics = bleu_statistics(every)
    assert statistics.names[:4] == ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
    scores = statistics.scores(counts(choice))[0]
    assert scores == pytest.approx(
        [100 * score for score in (*expected, *without_penalty)], abs=1e-9
    )


@pytest.fixture(scope="module")
def matched() -> Statistics:
    """METEOR's statistics of the six images, then of awkward captions, under a locale that it could
    not read itself.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=de -Duser.country=DE")
        references = [*REFERENCES, *[DOG] * len(AWKWARD), ["a ||| dog\r\nruns", ""]]
        return Meteor().match(references, [*CANDIDATES, *AWKWARD, "a dog runs"], 600)


def test_meteor(matched):
    """Against the jar's own EVAL of the same images, as often as they were chosen."""
    # what the jar counts a chunk too many is corrected in the rows
    lines = [" ".join(f"{number:g}" for number in row) for row in matched.rows]
    judge = Meteor()
    asked = [" ||| ".join(["EVAL", *(lines[i] for i in choice)]) for choice in CHOICES.values()]
    print(*asked, sep="\n", file=judge.start().stdin, flush=True)
    answers = iter(judge.start().stdout.readline, "")
    six = Statistics(matched.names, matched.rows[:6], matched.formula)
    for name, choice in CHOICES.items():
        per_image, corpus = [100 * float(next(answers)) for _ in choice], 100 * float(next(answers))
        assert six.scores(counts(choice))[0] == pytest.approx([corpus], abs=1e-9), name
        assert six.scores(np.eye(6)[list(choice)])[:, 0] == pytest.approx(per_image, abs=1e-9), name
    partly, whole = six.scores(np.eye(6))[[0, 2], 0]
    assert 0 < partly < whole == pytest.approx(100)


def test_meteor_keeps_awkward_captions_in_their_places(matched):
    *scores, perfect, whole = matched.scores(np.eye(len(matched.rows)))[6:, 0]
    assert scores[:4] == [0] * 4
    assert scores[4] == scores[5] == perfect < whole == pytest.approx(100)
    assert 0 < scores[6] <= perfect


def test_of_the_whole_corpus_they_are_the_scores(corpus):
    once = np.ones((1, len(corpus.candidates)))
    found = {}
    for statistics in corpus.scores.statistics:
        found |= dict(zip(statistics.names, statistics.scores(once)[0], strict=True))
    assert found == pytest.approx(corpus.scores.corpus, abs=1e-9)
