"""A score among those of the validation captions."""

import random

import pytest

from captioning.decoding.confidence import are_quantiles, confidence, quantiles_of


@pytest.mark.parametrize("count", [101, 350, 5000])
def test_it_is_the_share_of_lower_scores(count: int) -> None:
    draw = random.Random(count)
    scores = [-draw.gammavariate(2, 0.6) for _ in range(count)]
    quantiles = quantiles_of(scores)
    for score in [*draw.sample(scores, 50), -9.0, 0.0]:
        share = sum(other < score for other in scores) / count
        # two quantiles lie around it, a hundredth apart, and it is rounded to one
        assert confidence(score, quantiles) == pytest.approx(share, abs=0.02)
    assert confidence(min(scores), quantiles) == 0
    assert confidence(0.0, quantiles) == 1


def test_of_equal_scores_none_is_lower() -> None:
    quantiles = quantiles_of([-2.0] * 3 + [-1.0])
    assert confidence(-2.0, quantiles) == 0
    assert confidence(-1.0, quantiles) == pytest.approx(0.99)
    assert confidence(-1.5, quantiles_of([-2.0])) == 1


def test_without_scores_it_is_not_known() -> None:
    assert quantiles_of([]) == quantiles_of([-1.0, float("-inf")]) == []
    assert confidence(-1.0, []) is None


def test_what_quantiles_are() -> None:
    assert are_quantiles([])
    assert are_quantiles(quantiles_of([-1.0, -2.0]))
    for wrong in (None, [-1.0], [-1.0] * 100 + [-2.0], [-1.0] * 100 + [float("nan")], [-1] * 101, "a" * 101):
        assert not are_quantiles(wrong)
