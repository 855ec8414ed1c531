"""BLEU by sacreBLEU, an extra (Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018).

Words are what blanks separate, in lower case, as the texts come: `tok:none` and `case:lc` in the
signature.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from captioning.metrics.statistics import PERCENT, Array, Computed, Statistics


class SacreBleu:
    """BLEU of a corpus; of single sentences with the effective order, as sacreBLEU recommends."""

    name = "sacreBLEU"

    def __init__(self, references: Sequence[Sequence[str]]) -> None:
        try:
            from sacrebleu import BLEU  # an extra
        except ImportError as error:
            raise ImportError(
                "sacrebleu is not installed: pip install 'captioning[translation]'"
            ) from error
        self._bleu: Any = BLEU
        self._references, self.signature = references, ""

    def __call__(self, positions: Sequence[int], captions: Sequence[str]) -> Computed:
        """Score the captions of the images at these positions."""
        references, settings = (
            [self._references[place] for place in positions],
            {"lowercase": True, "tokenize": "none"},
        )
        corpus, sentence = (
            self._bleu(**settings, force=True),
            self._bleu(**settings, effective_order=True),
        )
        score = corpus.corpus_score(captions, list(zip_longest(*references))).score / PERCENT
        self.signature = f"{self.name}|{corpus.get_signature()}"
        found = [sentence.sentence_score(*pair) for pair in zip(captions, references, strict=True)]
        rows = np.array(
            [[each.sys_len, each.ref_len, *each.counts, *each.totals] for each in found], np.float64
        )
        statistics = Statistics((self.name,), rows, self._of_sums)
        return Computed(
            {self.name: score}, {self.name: [each.score / PERCENT for each in found]}, statistics
        )

    def _of_sums(self, sums: Array) -> Array:
        """`[K, 10]` to `[K, 1]`, smoothed as by default."""
        counts = sums.astype(int).tolist()
        scores = [
            self._bleu.compute_bleu(n[2:6], n[6:], n[0], n[1], smooth_method="exp").score
            for n in counts
        ]
        return np.array(scores)[:, None] / PERCENT
