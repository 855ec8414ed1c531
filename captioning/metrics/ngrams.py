"""Metrics of sequences of words: BLEU and ROUGE-L.

B images, K sets of images. Sources: BLEU, Papineni et al., ACL 2002; ROUGE-L, Lin, 2004; the
closest reference length, Chen et al., "Microsoft COCO Captions", 2015.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from pycocoevalcap.bleu.bleu_scorer import BleuScorer

from captioning.metrics.metric import (
    BLEU_ALONE,
    PYCOCOEVALCAP,
    Images,
    Metric,
    ScoreType,
    Texts,
    first_captions,
    first_pairs,
    main_score,
)
from captioning.metrics.statistics import (
    NO_PENALTY,
    SMALL,
    TINY,
    Array,
    MetricResult,
    Statistics,
)

BLEU_NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
UNPENALISED = tuple(name + NO_PENALTY for name in BLEU_NAMES)
BETA = 1.2  # of ROUGE-L: how much more recall counts than precision


@lru_cache(maxsize=4)  # those of validation and test; many systems are scored against the same
def _scorer(references: tuple[tuple[str, ...], ...]) -> BleuScorer:
    """A scorer with the n-grams of the references; its captions are exchanged."""
    scorer = BleuScorer()
    for texts in references:
        scorer += (None, texts)
    return scorer


class Bleu(Metric):
    """BLEU-1 to BLEU-4, of the corpus with and without brevity penalty."""

    name = "BLEU"
    scores = (
        *map(main_score, BLEU_NAMES),
        *(ScoreType(name, BLEU_ALONE, best="max") for name in UNPENALISED),
    )

    fields = {"length": "closest"} | PYCOCOEVALCAP

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        scorer = _scorer(tuple(map(tuple, references)))
        scorer.special_reflen = None
        scorer.retest(first_captions(captions))
        corpus, per_image = scorer.compute_score(option="closest")
        # Against references of length zero no candidate is too short, so the same n-gram counts go
        # without a penalty. Only a corpus of empty candidates still has one, which makes it the 0
        # that it should be.
        scorer.special_reflen = 0
        unpenalised, _ = scorer.recompute_score(option="closest")
        scores = dict(zip((*BLEU_NAMES, *UNPENALISED), [*corpus, *unpenalised], strict=True))
        of_images = dict(zip(BLEU_NAMES, per_image, strict=True))
        return MetricResult(scores, of_images, bleu_statistics(scorer))


def bleu_statistics(scorer: BleuScorer) -> Statistics:
    """Numbers of each caption that `scorer` holds: its length, the closest reference length, and
    its n-grams and matched n-grams, n = 1..4.
    """
    rows = []
    for caption in scorer.ctest:
        length = caption["testlen"]
        _, closest = min((abs(known - length), known) for known in caption["reflen"])
        rows.append([length, closest, *caption["guess"], *caption["correct"]])
    return Statistics((*BLEU_NAMES, *UNPENALISED), np.array(rows, float), corpus_bleu)


def corpus_bleu(sums: Array) -> Array:
    """BLEU (Papineni et al. 2002) of summed statistics, `[K, 10]` to `[K, 8]`, with the guards of
    pycocoevalcap (bleu/bleu_scorer.py).
    """
    length, reference_length = sums[:, :1], sums[:, 1:2]
    guesses, matches = sums[:, 2:6], sums[:, 6:10]
    precisions = (matches + TINY) / (guesses + SMALL)
    # a corpus of empty captions is short against any reference
    unpenalised = precisions.cumprod(axis=1) ** (1 / np.arange(1, 5)) * (length > 0)
    excess = (reference_length + SMALL) / (length + TINY) - 1
    return np.hstack([unpenalised * np.exp(-np.maximum(excess, 0)), unpenalised])


class RougeL(Metric):
    """ROUGE-L."""

    name = "ROUGE-L"
    scores = (main_score("ROUGE-L", mean=True),)

    fields = {"beta": str(BETA)} | PYCOCOEVALCAP  # which has equal results

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        scores = [_rouge_l(caption, texts) for caption, texts in first_pairs(captions, references)]
        return MetricResult.from_means({self.name: scores})


def _rouge_l(caption: str, references: Sequence[str]) -> float:
    """F measure of the shares of a caption's and of a reference's words that are common."""
    words = caption.split(" ")
    others = [text.split(" ") for text in references]
    common = [longest_common(words, other) for other in others]
    precision = max(common) / len(words)
    recall = max(length / len(other) for length, other in zip(common, others, strict=True))
    weight = BETA**2
    return (1 + weight) * precision * recall / (recall + weight * precision) if recall else 0.0


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence, with a bit for each word (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    every = row = (1 << len(one)) - 1
    for word in other:
        matched = row & places.get(word, 0)
        row = (row + matched | row - matched) & every
    return len(one) - row.bit_count()
