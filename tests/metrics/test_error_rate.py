"""The error rate against a recursion, as a distance, and as a corpus statistic."""

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest

from captioning.metrics.scorer import Scorer, score_called
from captioning.metrics.statistics import distance, error_rate


def recursive(one: Sequence[str], other: Sequence[str]) -> int:
    if not one or not other:
        return len(one) + len(other)
    replaced = recursive(one[1:], other[1:]) + (one[0] != other[0])
    return min(replaced, recursive(one[1:], other) + 1, recursive(one, other[1:]) + 1)


def test_distance_is_the_recursion_and_a_metric() -> None:
    draw = random.Random(0)
    texts = [[], *([draw.choice("abc") for _ in range(draw.randint(1, 5))] for _ in range(12))]
    for one, other in itertools.product(texts, repeat=2):
        found = distance(one, other)
        assert found == recursive(one, other) == distance(other, one)
        assert (found == 0) == (one == other)
        assert all(found <= distance(one, third) + distance(third, other) for third in texts)


def test_rate_of_a_corpus() -> None:
    references = [["a b c d"], ["b", "a b"], ["c c c c"]]
    found = error_rate(references, ["a c d d", "a c", ""])
    assert found.per_image == {"WER": [2 / 4, 1 / 2, 1.0]}  # the nearest of two references
    assert found.corpus == {"WER": 7 / 10}  # not the mean of the rates
    assert found.statistics is not None
    twice = found.statistics.scores(np.array([[0, 2, 1.0]]))
    assert twice[0, 0] == pytest.approx(100 * 6 / 8)


def test_in_the_table_of_scores() -> None:
    scores = Scorer([["aa b"], ["b b"]], metrics=["WER"]).score({0: "aa b b b b b", 1: "b"})
    assert (scores.corpus, scores.per_image) == ({"WER": 125.0}, [{"WER": 200.0}, {"WER": 50.0}])
    assert score_called("WER").best == "min"
