"""Metrics of tokenised captions, and per-image statistics that give the scores of any set.

B images, S numbers per image, K sets of images, M scores of a metric.

BLEU and METEOR of a corpus are computed from sums of counts, hallucination and the error rate are
ratios of two sums; ROUGE-L, CIDEr and SPICE are means of image scores.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from pycocoevalcap.rouge.rouge import Rouge

BLEU_NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
NO_PENALTY = " (no brevity penalty)"
ERROR_RATE = "WER"
PERCENT = 100.0
SMALL, TINY = 1e-9, 1e-15
"""Added to the denominators and numerators of BLEU, as pycocoevalcap does."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """One metric's numbers per image."""

    names: tuple[str, ...]  # of its M scores
    rows: Array  # `[B, S]`
    formula: Callable[[Array], Array]  # sums of rows `[K, S]` to scores `[K, M]`, 0-1

    def scores(self, counts: Array) -> Array:
        """Score K sets of images, 0-100: counts of each image `[K, B]` to `[K, M]`."""
        return PERCENT * self.formula(counts @ self.rows)


@dataclass(frozen=True)
class Computed:
    """One metric's scores, 0-1, by name: of the corpus, and of each image."""

    corpus: dict[str, float]
    per_image: dict[str, Sequence[float]]
    statistics: Statistics | None
    hallucinated: Sequence[
        Sequence[str]
    ] = ()  # objects that B captions name and that are not there

    @classmethod
    def from_sums(cls, statistics: Statistics) -> "Computed":
        """One score that has a formula for sums over images."""
        (name,), rows, formula = statistics.names, statistics.rows, statistics.formula
        corpus = formula(rows.sum(axis=0, keepdims=True)).item()
        return cls({name: corpus}, {name: formula(rows)[:, 0].tolist()}, statistics)


def bleu(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """BLEU-1 to BLEU-4, 0-1, for the corpus with and without brevity penalty."""
    scorer = BleuScorer(n=len(BLEU_NAMES))
    for captions, candidate in zip(references, candidates, strict=True):
        scorer += (candidate, captions)
    corpus, per_image = scorer.compute_score(option="closest")
    # Against references of length zero no candidate is too short, so the same n-gram counts go
    # without a penalty. Only a corpus of empty candidates still has one, which makes it the 0 that
    # it should be.
    scorer.special_reflen = 0
    without_penalty, _ = scorer.recompute_score(option="closest")
    statistics = bleu_statistics(scorer)
    scores = dict(zip(statistics.names, [*corpus, *without_penalty], strict=True))
    return Computed(scores, dict(zip(BLEU_NAMES, per_image, strict=True)), statistics)


def rouge_l(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """ROUGE-L, 0-1."""
    pairs = zip(references, candidates, strict=True)
    return mean(
        "ROUGE-L", [Rouge().calc_score([candidate], captions) for captions, candidate in pairs]
    )


def cider(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """CIDEr-D, 0-10, with the document frequencies of these references; NaN where it is 0 for any
    captions.
    """
    if is_constant(references):
        return Computed({"CIDEr": np.nan}, {"CIDEr": [np.nan] * len(candidates)}, None)
    scorer = CiderScorer()
    for captions, candidate in zip(references, candidates, strict=True):
        scorer += (candidate, captions)
    # CiderScorer.compute_score is these two steps and a check that fails where no reference has a
    # word.
    scorer.compute_doc_freq()
    return mean("CIDEr", scorer.compute_cider())


def is_constant(references: Sequence[Collection[Hashable]]) -> bool:
    """Return True if CIDEr is 0 for any captions: all images have the same references, so no n-gram
    has a weight.
    """
    return len({frozenset(captions) for captions in references}) == 1


def error_rate(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """Error rate of words: the sum of edit distances divided by that of reference lengths; it can
    exceed 1.

    Of several references the nearest counts, the shortest of those (D).
    """
    pairs = [
        min((distance(text.split(), candidate.split()), len(text.split())) for text in texts)
        for texts, candidate in zip(references, candidates, strict=True)
    ]
    edits, lengths = np.array(pairs, dtype=np.float64).T[..., None]
    return shares([ERROR_RATE], edits, lengths)


def distance(source: Sequence[str], target: Sequence[str]) -> int:
    """Fewest words to insert, delete or replace (Levenshtein 1966), by rows of the table."""
    places, words = np.arange(len(target) + 1), np.array(target, dtype=object)
    row = places
    for word in source:
        above = np.append(row[0] + 1, np.minimum(row[1:] + 1, row[:-1] + (words != word)))
        row = np.minimum.accumulate(above - places) + places  # insertions
    return int(row[-1])


Function = Callable[[Sequence[Sequence[str]], Sequence[str]], Computed]
FUNCTIONS: Mapping[str, Function] = {
    "BLEU": bleu,
    "ROUGE-L": rouge_l,
    "CIDEr": cider,
    ERROR_RATE: error_rate,
}
"""Metrics by name: functions of B images' tokenised references, and of their tokenised captions."""


def mean(name: str, per_image: Sequence[float]) -> Computed:
    """The score of a metric whose corpus score is the mean of its image scores."""
    return means({name: per_image})


def means(per_image: Mapping[str, Sequence[float]]) -> Computed:
    """The scores of a metric of several names, each a mean over images."""
    corpus = {name: float(np.mean(scores)) for name, scores in per_image.items()}
    return Computed(corpus, dict(per_image), mean_statistics(per_image))


def mean_statistics(per_image: Mapping[str, Sequence[float]]) -> Statistics:
    """Statistics of scores by name that are means over images."""
    columns = [np.asarray(scores, dtype=np.float64) for scores in per_image.values()]
    return Statistics(
        tuple(per_image), np.stack([*columns, np.ones_like(columns[0])], axis=1), _means
    )


def _means(sums: Array) -> Array:
    return sums[:, :-1] / sums[:, -1:]


def shares(names: Sequence[str], parts: Array, wholes: Array) -> Computed:
    """Scores that are a sum over images divided by another, both `[B, M]`; nothing divided by
    nothing is no score.
    """
    rows = np.hstack([parts, wholes])
    corpus = _share(rows.sum(axis=0, keepdims=True))[0].tolist()
    per_image = dict(zip(names, _share(rows).T.tolist(), strict=True))
    known = {name: score for name, score in zip(names, corpus, strict=True) if np.isfinite(score)}
    return Computed(known, per_image, Statistics(tuple(names), rows, _share))


def _share(sums: Array) -> Array:
    parts, wholes = np.hsplit(sums, 2)
    return np.divide(parts, wholes, out=np.full_like(parts, np.nan), where=wholes > 0)


def bleu_statistics(scorer: BleuScorer) -> Statistics:
    """Per caption that `scorer` holds: length, closest reference length, n-grams and matched
    n-grams, n = 1..4.
    """
    rows = []
    for caption in scorer.ctest:
        length = caption["testlen"]
        _, closest = min((abs(each - length), each) for each in caption["reflen"])
        rows.append([length, closest, *caption["guess"], *caption["correct"]])
    names = (*BLEU_NAMES, *(name + NO_PENALTY for name in BLEU_NAMES))
    return Statistics(names, np.array(rows, dtype=np.float64), _bleu)


def _bleu(sums: Array) -> Array:
    """Papineni et al. (2002), with the guards of pycocoevalcap (bleu/bleu_scorer.py): `[K, 10]` to
    `[K, 8]`.
    """
    length, reference_length = sums[:, :1], sums[:, 1:2]
    guesses, matches = sums[:, 2:6], sums[:, 6:10]
    precisions = (matches + TINY) / (guesses + SMALL)
    # a corpus of empty captions is short against any reference
    unpenalised = precisions.cumprod(axis=1) ** (1 / np.arange(1, 5)) * (length > 0)
    excess = (reference_length + SMALL) / (length + TINY) - 1
    return np.hstack([unpenalised * np.exp(-np.maximum(excess, 0)), unpenalised])
