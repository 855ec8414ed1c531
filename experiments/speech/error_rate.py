"""The error rate of words (WER), a metric of one's own."""

from collections.abc import Sequence

import numpy as np

from captioning.metrics.metric import Images, Metric, Texts, first_pairs, main_score
from captioning.metrics.statistics import MetricResult


class ErrorRate(Metric):
    """Error rate of words: edit distances divided by reference lengths, both summed.

    It can exceed 1. Of several references the nearest counts, the shortest of those (D).
    """

    name = "WER"
    scores = (main_score("WER", "%", best="min"),)

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        counts = [
            [min((distance(text.split(), caption.split()), len(text.split())) for text in texts)]
            for caption, texts in first_pairs(captions, references)
        ]
        return MetricResult.from_shares([self.name], counts)


def distance(source: Sequence[str], target: Sequence[str]) -> int:
    """Fewest words to insert, delete or replace (Levenshtein 1966), by rows of the table."""
    columns, words = np.arange(len(target) + 1), np.array(target, dtype=object)
    row = columns
    for word in source:
        above = np.append(row[0] + 1, np.minimum(row[1:] + 1, row[:-1] + (words != word)))
        row = np.minimum.accumulate(above - columns) + columns  # insertions
    return int(row[-1])
