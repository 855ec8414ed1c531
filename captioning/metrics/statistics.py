"""Metrics of tokenised captions, and the statistics per image whose sums give the scores of any set of images.

B images, S numbers per image, K sets of images, M scores of a metric.

BLEU and METEOR of a corpus are computed from sums of counts; ROUGE-L, CIDEr and SPICE are means of image scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from pycocoevalcap.rouge.rouge import Rouge

BLEU_NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
NO_PENALTY = " (no brevity penalty)"
PERCENT = 100.0
SMALL, TINY = 1e-9, 1e-15
"""What pycocoevalcap adds to the denominators and numerators of BLEU."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """One metric's numbers per image.

    Attributes:
        names: of its M scores.
        rows: `[B, S]`.
        formula: sums of rows `[K, S]` to scores `[K, M]`, 0-1.
    """

    names: tuple[str, ...]
    rows: Array
    formula: Callable[[Array], Array]

    def scores(self, counts: Array) -> Array:
        """The scores of K sets of images on the scale of papers, `[K, M]`.

        Args:
            counts: `[K, B]`, how often each image is in each set.
        """
        return PERCENT * self.formula(counts @ self.rows)


@dataclass(frozen=True)
class Computed:
    """One metric's scores, 0-1, by name: of the corpus, and of each image."""

    corpus: dict[str, float]
    per_image: dict[str, Sequence[float]]
    statistics: Statistics | None


def bleu(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """BLEU-1 to BLEU-4 of tokenised captions, 0-1, for the corpus with and without brevity penalty."""
    scorer = BleuScorer(n=len(BLEU_NAMES))
    for captions, candidate in zip(references, candidates, strict=True):
        scorer += (candidate, captions)
    corpus, per_image = scorer.compute_score(option="closest")
    # Against references of length zero no candidate is too short, so the same n-gram counts go without a penalty. Only
    # a corpus of empty candidates still has one, which makes it the 0 that it should be.
    scorer.special_reflen = 0
    without_penalty, _ = scorer.recompute_score(option="closest")
    return Computed(
        dict(zip(BLEU_NAMES, corpus, strict=True))
        | {name + NO_PENALTY: score for name, score in zip(BLEU_NAMES, without_penalty, strict=True)},
        dict(zip(BLEU_NAMES, per_image, strict=True)),
        bleu_statistics(scorer),
    )


def rouge_l(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """ROUGE-L of tokenised captions, 0-1."""
    pairs = zip(references, candidates, strict=True)
    return mean("ROUGE-L", [Rouge().calc_score([candidate], captions) for captions, candidate in pairs])


def cider(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """CIDEr-D of tokenised captions, 0-10, with the document frequencies of these references (one image gives 0)."""
    scorer = CiderScorer()
    for captions, candidate in zip(references, candidates, strict=True):
        scorer += (candidate, captions)
    # CiderScorer.compute_score is these two steps and a check that fails where no reference has a word.
    scorer.compute_doc_freq()
    return mean("CIDEr", scorer.compute_cider())


def meteor(statistics: Statistics) -> Computed:
    """METEOR, 0-1, from what the jar has matched."""
    corpus = statistics.formula(statistics.rows.sum(axis=0, keepdims=True)).item()
    return Computed({"METEOR": corpus}, {"METEOR": statistics.formula(statistics.rows)[:, 0].tolist()}, statistics)


def mean(name: str, per_image: Sequence[float]) -> Computed:
    """A metric whose corpus score is the mean of its image scores."""
    return Computed({name: float(np.mean(per_image))}, {name: per_image}, mean_statistics(name, per_image))


def bleu_statistics(scorer: BleuScorer) -> Statistics:
    """Per caption that `scorer` holds: length, closest reference length, n-grams and matched n-grams, n = 1..4."""
    rows = [
        [
            caption["testlen"],
            min((abs(length - caption["testlen"]), length) for length in caption["reflen"])[1],
            *caption["guess"],
            *caption["correct"],
        ]
        for caption in scorer.ctest
    ]
    names = (*BLEU_NAMES, *(name + NO_PENALTY for name in BLEU_NAMES))
    return Statistics(names, np.array(rows, dtype=np.float64), _bleu)


def _bleu(sums: Array) -> Array:
    """Papineni et al. (2002), with the guards of pycocoevalcap (bleu/bleu_scorer.py): `[K, 10]` to `[K, 8]`."""
    length, reference_length = sums[:, :1], sums[:, 1:2]
    guesses, matches = sums[:, 2:6], sums[:, 6:10]
    precisions = (matches + TINY) / (guesses + SMALL)
    # a corpus of empty captions is short against any reference
    unpenalised = precisions.cumprod(axis=1) ** (1 / np.arange(1, 5)) * (length > 0)
    excess = (reference_length + SMALL) / (length + TINY) - 1
    return np.hstack([unpenalised * np.exp(-np.maximum(excess, 0)), unpenalised])


def meteor_statistics(lines: Sequence[str]) -> Statistics:
    """From the jar's answers to SCORE: a line of 23 numbers per image, for the reference that fits it best."""
    rows = np.array([line.split() for line in lines], dtype=np.float64)
    # A caption that matches its reference whole and in order is no fragment: the jar does not add its only chunk.
    matched = rows[:, 4:20].reshape(-1, 8, 2).sum(axis=1)  # [B, 2]
    whole = (matched == rows[:, :2]).all(axis=1) & (rows[:, 20] == 1)
    rows[whole, 20] = 0
    return Statistics(("METEOR",), rows, _meteor)


def _meteor(sums: Array) -> Array:
    """METEOR 1.5 of English with the jar's default parameters, from sums of its numbers: `[K, 23]` to `[K, 1]`.

    Denkowski and Lavie, "Meteor Universal" (WMT 2014), section 2. The numbers, of candidate and reference in turn: 0-1
    words, 2-3 function words, 4-19 matched content words and matched function words by each of the four matchers; 20
    chunks; 21-22 matched words again, as the chunks count them.
    """
    alpha, beta, gamma, delta = 0.85, 0.2, 0.6, 0.75
    matchers = np.array([1.0, 0.6, 0.8, 0.6])
    words, function_words = sums[:, 0:2], sums[:, 2:4]
    content, function = sums[:, 4:20].reshape(-1, 4, 2, 2).transpose(2, 0, 1, 3)  # [K, 4, 2] each
    matches = matchers @ (delta * content + (1 - delta) * function)  # [K, 2]
    with np.errstate(divide="ignore", invalid="ignore"):  # without a match the score is 0
        precision, recall = (matches / (delta * (words - function_words) + (1 - delta) * function_words)).T
        f_mean = 1 / ((1 - alpha) / precision + alpha / recall)
        fragmentation = sums[:, 20] / sums[:, 21:].mean(axis=1)
        score = f_mean * (1 - gamma * fragmentation**beta)
    return np.maximum(np.nan_to_num(score), 0)[:, None]


def mean_statistics(name: str, per_image: Sequence[float]) -> Statistics:
    """Statistics of a metric whose corpus score is the mean of its image scores."""
    scores = np.asarray(per_image, dtype=np.float64)
    return Statistics((name,), np.stack([scores, np.ones_like(scores)], axis=1), _mean)


def _mean(sums: Array) -> Array:
    return sums[:, :1] / sums[:, 1:]
