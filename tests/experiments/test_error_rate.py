"""The error rate of words, against its recursive definition and sums by hand."""

import itertools
import random

import numpy as np
import pytest

from experiments.speech.error_rate import ErrorRate, distance


def recursive(one, other):
    if not one or not other:
        return len(one) + len(other)
    replaced = recursive(one[1:], other[1:]) + (one[0] != other[0])
    return min(replaced, recursive(one[1:], other) + 1, recursive(one, other[1:]) + 1)


def test_distance_is_the_recursion_and_a_metric():
    draw = random.Random(0)
    texts = [[], *([draw.choice("abc") for _ in range(draw.randint(1, 5))] for _ in range(12))]
    for one, other in itertools.product(texts, repeat=2):
        steps = distance(one, other)
        assert steps == recursive(one, other) == distance(other, one)
        assert (steps == 0) == (one == other)
        assert all(steps <= distance(one, third) + distance(third, other) for third in texts)


def test_error_rate_of_a_corpus():
    references = [["a b c d"], ["b", "a b"], ["c c c c"]]
    result = ErrorRate().compute([["a c d d"], ["a c"], [""]], references)
    assert result.per_image == {"WER": [2 / 4, 1 / 2, 1.0]}  # the nearest of two references
    assert result.corpus == {"WER": 7 / 10}  # not the mean of the rates
    twice = result.statistics.scores(np.array([[0, 2, 1.0]]))
    assert twice[0, 0] == pytest.approx(100 * 6 / 8)
