"""Diversity of several captions of an image, and the best and the mean of their scores.

B images, N captions of an image, K different n-grams of these.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import pairwise

import numpy as np
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import precook

from captioning.errors import CaptioningError
from captioning.metrics.cider import Cider
from captioning.metrics.metric import PYCOCOEVALCAP, Images, Metric, Texts, main_score
from captioning.metrics.statistics import TINY, MetricResult, is_constant

ORDERS = 4  # n of n-grams is 1 to 4
CIDERS = ("self-CIDEr", "CIDEr (best of n)", "CIDEr (mean of n)")
SEVERAL = (
    "decoding=beam decoding.width=5 decoding.n_best=5, decoding=sample decoding.n=5, or "
    "decoding=diverse_beam give several"
)


class Diversity(Metric):
    """Diversity of the captions of an image, a mean over images; NaN without several captions.

    - distinct-1, distinct-2: different words, and pairs of words, as a share of all that the
      captions of an image have. Li et al., "A Diversity-Promoting Objective Function", 2016; image
      by image as Shetty et al., "Speaking the Same Language", ICCV 2017, whose code divides pairs
      by words (D).
    - mBLEU-4 (Shetty et al. 2017): mean BLEU-4 of each caption with the others as references, of
      single sentences (D).
    - self-CIDEr: `self_cider`.
    - CIDEr-D of the best caption (oracle), and the mean over captions.

    (D) All images have N captions, the most that an image has: the first one of the others is
    repeated, since diverse beam search drops equal captions.
    """

    name = "diversity"
    scores = (
        *(main_score(f"distinct-{n} (per image)", "%", mean=True) for n in (1, 2)),
        main_score("mBLEU-4", best="min", mean=True),
        *(main_score(name, "x 100", mean=True) for name in CIDERS),
    )
    _counts: Set[int] = frozenset()  # N of the sets that have been scored

    def signature(self, references: Texts) -> Mapping[str, object]:
        counts = ",".join(map(str, sorted(self._counts)))
        return {"n": counts, "df": len(references), **PYCOCOEVALCAP}

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        n = max(map(len, captions))
        self._counts = {*self._counts, n}
        if n == 1:
            raise CaptioningError(f"every image has one caption; {SEVERAL}")
        # (D) the first caption again where an image has fewer
        captions = [[*texts, *[texts[0]] * (n - len(texts))] for texts in captions]
        cider, ciders = Cider(self.language), []
        for rank in zip(*captions, strict=True):  # the first captions of all images, and so on
            result = cider.compute([[text] for text in rank], references)
            ciders.append(result.per_image[cider.name])
        words = [[text.split() for text in texts] for texts in captions]
        pairs = [[list(pairwise(split)) for split in texts] for texts in words]
        columns = (
            [_distinct(terms) for terms in words],
            [_distinct(terms) for terms in pairs],
            _mutual_bleu(captions),
            self_cider(captions, references),
            np.max(ciders, axis=0).tolist(),
            np.mean(ciders, axis=0).tolist(),
        )
        names = [score.name for score in self.scores]
        return MetricResult.from_means(dict(zip(names, columns, strict=True)))


def _distinct(captions: Sequence[Sequence[object]]) -> float:
    terms = [term for caption in captions for term in caption]
    return len({*terms}) / max(1, len(terms))


def _mutual_bleu(captions: Texts) -> list[float]:
    scorer = BleuScorer(n=ORDERS)
    for texts in captions:
        for i, text in enumerate(texts):
            scorer += (text, [*texts[:i], *texts[i + 1 :]])
    _, by_order = scorer.compute_score(option="closest")
    return np.reshape(by_order[-1], (len(captions), -1)).mean(1).tolist()


@lru_cache(maxsize=2)  # of validation and test
def _frequencies(references: tuple[tuple[str, ...], ...]) -> Counter[tuple[str, ...]]:
    """In how many of the images' references each n-gram is."""
    return Counter(term for texts in references for term in set().union(*map(precook, texts)))


def self_cider(captions: Texts, references: Texts) -> list[float]:
    """Diversity of the captions of each image, 0 if they are equal and 1 if they share no n-gram.

    Wang and Chan, "Describing Like Humans: On Diversity in Image Captioning", CVPR 2019: with the
    eigenvalues l_1 >= .. >= l_N of the matrix of CIDEr (Vedantam et al. 2015: cosines of tf-idf
    vectors, without the clipping and the length penalty of CIDEr-D) between N captions of an image,
    it is -log_N(sqrt(l_1) / sum_i sqrt(l_i)). The square roots are the singular values of the
    matrix of the captions' vectors. Document frequencies are those of the references, as for CIDEr.
    """
    if is_constant(references):
        return [math.nan] * len(captions)
    frequencies = _frequencies(tuple(map(tuple, references)))
    most = math.log(len(references))
    scores = []
    for texts in captions:
        counts = [precook(text, ORDERS) for text in texts]
        terms = sorted(set().union(*counts))
        idf = [most - math.log(max(1.0, frequencies[term])) for term in terms]
        vectors = np.array([[one.get(term, 0) for term in terms] for one in counts]) * idf  # [N, K]
        for n in range(1, ORDERS + 1):
            of_order = np.array([len(term) == n for term in terms], dtype=bool)
            norms = np.linalg.norm(vectors[:, of_order], axis=1, keepdims=True)
            vectors[:, of_order] /= np.maximum(norms, TINY)
        values = np.linalg.svd(vectors, compute_uv=False) if terms else np.zeros(1)
        share = values[0] / values.sum() if values[0] > 0 else 1.0
        scores.append(-math.log(share) / math.log(len(texts)))
    return scores
