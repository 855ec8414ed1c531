"""BLEU by sacreBLEU, an extra (Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018).

Words are what blanks separate, in lower case, as the texts come: `tok:none` and `case:lc` in the
signature.
"""

from functools import partial
from itertools import zip_longest

import numpy as np

from captioning.data.words import ENGLISH
from captioning.metrics.metric import (
    Fields,
    Images,
    Metric,
    Texts,
    first_captions,
    first_pairs,
    main_score,
)
from captioning.metrics.statistics import PERCENT, Array, MetricResult, Statistics


class SacreBleu(Metric):
    """BLEU of a corpus; of single sentences with the effective order, as sacreBLEU recommends."""

    name = "sacreBLEU"
    scores = (main_score("sacreBLEU"),)
    tokenized = False

    def __init__(self, language: str = ENGLISH, timeout: float = 60.0) -> None:
        super().__init__(language, timeout)
        try:
            from sacrebleu import BLEU  # an extra
        except ImportError as error:
            raise ImportError(
                "sacrebleu is not installed: pip install 'captioning[translation]'"
            ) from error
        self._compute = BLEU.compute_bleu
        self._bleu = partial(BLEU, lowercase=True, tokenize="none")

    def signature(self, references: Texts) -> Fields:
        corpus = self._bleu(force=True, references=list(zip_longest(*references)))
        return dict(field.split(":", 1) for field in str(corpus.get_signature()).split("|"))

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        streams = list(zip_longest(*references))
        corpus = self._bleu(force=True).corpus_score(first_captions(captions), streams)
        sentence = self._bleu(effective_order=True)
        scores = [sentence.sentence_score(*pair) for pair in first_pairs(captions, references)]
        rows = np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], np.float64)
        return MetricResult(
            {self.name: corpus.score / PERCENT},
            {self.name: [score.score / PERCENT for score in scores]},
            Statistics((self.name,), rows, self._of_sums),
        )

    def _of_sums(self, sums: Array) -> Array:
        """`[K, 10]` to `[K, 1]`, smoothed as by default."""
        scores = [
            self._compute(n[2:6], n[6:], n[0], n[1], smooth_method="exp").score
            for n in sums.astype(int).tolist()
        ]
        return np.array(scores)[:, None] / PERCENT
