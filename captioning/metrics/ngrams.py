"""Metrics of sequences of words: BLEU and ROUGE-L.

B images, K sets of images. Sources: BLEU, Papineni et al., ACL 2002; ROUGE-L, Lin, 2004; the
closest reference length, Chen et al., "Microsoft COCO Captions", 2015.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from captioning.metrics.cider import scored_pairs
from captioning.metrics.metric import (
    BLEU_ALONE,
    PYCOCOEVALCAP,
    Images,
    Metric,
    ScoreType,
    Texts,
    first_pairs,
    main_score,
)
from captioning.metrics.statistics import NO_PENALTY, SMALL, TINY, Array, MetricResult, Statistics

BLEU_NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
UNPENALISED = tuple(name + NO_PENALTY for name in BLEU_NAMES)
BETA = 1.2  # of ROUGE-L: how much more recall counts than precision


class Bleu(Metric):
    """BLEU-1 to BLEU-4, of the corpus with and without brevity penalty."""

    name = "BLEU"
    scores = (
        *map(main_score, BLEU_NAMES),
        *(ScoreType(name, BLEU_ALONE, best="max") for name in UNPENALISED),
    )

    fields = {"length": "closest"} | PYCOCOEVALCAP  # which has equal results

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        counts = [pairs.bleu_counts() for pairs in scored_pairs(captions, references)]
        names = *BLEU_NAMES, *UNPENALISED
        result = MetricResult.from_sums(Statistics(names, np.concatenate(counts), corpus_bleu))
        return replace(result, per_image={name: result.per_image[name] for name in BLEU_NAMES})


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
