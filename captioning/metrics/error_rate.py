"""Error rate of words by edit distance, as in speech recognition; a corpus statistic. B images."""

from collections.abc import Sequence

import numpy as np

from captioning.metrics.statistics import Computed, shares

NAME = "WER"


def error_rate(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """Sum of edit distances divided by the sum of reference lengths; can exceed 1.

    Of several references the nearest counts, the shortest of those (D).
    """
    pairs = [
        min((distance(text.split(), candidate.split()), len(text.split())) for text in texts)
        for texts, candidate in zip(references, candidates, strict=True)
    ]
    edits, lengths = np.array(pairs, dtype=np.float64).T[..., None]
    return shares([NAME], edits, lengths)


def distance(source: Sequence[str], target: Sequence[str]) -> int:
    """Fewest words to insert, delete or replace (Levenshtein 1966), by rows of the table."""
    places, words = np.arange(len(target) + 1), np.array(target, dtype=object)
    row = places
    for word in source:
        above = np.append(row[0] + 1, np.minimum(row[1:] + 1, row[:-1] + (words != word)))
        row = np.minimum.accumulate(above - places) + places  # insertions
    return int(row[-1])
