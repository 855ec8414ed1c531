"""Curves of a score over the number of training images, on numbers drawn from known curves."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from captioning.metrics.contrasts import Measured
from experiments.data_size.curves import EXPONENTS, compared, crossings, fit, gains

SIZES = np.array([750.0, 1500, 3000, 6000])


@pytest.mark.parametrize("exponent", EXPONENTS[[5, 20, 30]])
def test_exact_curves_are_found_again(exponent):
    a, b = 60.0, 20 * 750**exponent  # 40 at 750 images
    scores = a - b * SIZES**-exponent
    (found,) = (fit(SIZES, scores[None]),)
    assert found.c[0] == exponent
    assert_allclose([found.a[0], found.b[0]], [a, b], rtol=1e-6)
    assert_allclose(found.at(12000)[0], a - b * 12000**-exponent, rtol=1e-6)


def test_a_score_that_falls_with_data_is_fitted_by_its_mean():
    found = fit(SIZES, np.array([[50.0, 45, 40, 35]]))
    assert found.b[0] == 0
    assert found.at(1e6)[0] == pytest.approx(42.5)


def constant(samples):
    """Scores that vary neither with images nor with runs: the first sample of each size."""
    return {
        name: [Measured.from_values(np.full((3, 7), score)) for score in rows[0]]
        for name, rows in samples.items()
    }


def test_curves_that_cross_are_told_from_curves_that_do_not():
    noise = np.random.default_rng(0).normal(0, 0.1, size=(500, 4))
    rising = np.array([30.0, 35, 40, 45]) + noise
    samples = {"one": rising, "above": rising + 5, "steeper": rising + np.array([-3, -1, 1, 3])}
    *lines, _, corrected = crossings(constant(samples), samples, SIZES)[2:]
    assert [line.split("|")[-2].strip() for line in lines] == ["0", "100", "0"]
    assert corrected.endswith("for 0: none.")


def drawn(random, level, seeds, pairs):
    """Scores of runs on 50 images, each with what its seed adds."""
    values = level + np.array(seeds)[:, None] + random.normal(0, 1, (len(seeds), 50))
    return replace(Measured.from_values(values), pairs=pairs)


def test_what_a_subset_adds_to_two_systems_is_no_part_of_their_difference():
    random, seeds = np.random.default_rng(0), [1, 2, 3]
    one, other = (drawn(random, level, [5, -5, 0], seeds) for level in (40, 36))
    whole = [drawn(random, level, [0, 0, 0], ()) for level in (44, 44)]
    independent = [replace(system, pairs=()) for system in (one, other)]
    assert compared((one, other), (1, -1)).excludes_zero
    assert not compared(independent, (1, -1)).excludes_zero
    assert compared((*whole, one, other), (1, -1, -1, 1)).excludes_zero
    more = drawn(random, 44, [0, 0, 0, 0], ())
    assert compared((more, whole[0], one, other), (1, -1, -1, 1)).low is not None
    # one subset and the whole split share nothing
    gain = compared((one, whole[0]), (1, -1))
    assert gain == compared((independent[0], whole[0]), (1, -1))


def test_gains_and_the_best_system_at_each_size():
    rising = np.tile([30.0, 35, 40, 45], (10, 1))
    other = np.tile([31.0, 36, 39, 44], (10, 1))
    other[0, 1] = 34  # in one of ten samples, the first is better here
    samples = {"one": rising, "other": other}
    scores = constant({name: rows[1:] for name, rows in samples.items()})
    rows = [line.split("|")[1:-1] for line in gains(scores, samples, SIZES)[2:]]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells == [
        ["one", "+15.0", "+5.0", "+5.0", "+5.0", "0", "10", "100", "100"],
        ["other", "+13.0", "+5.0", "+3.0", "+5.0", "100", "90", "0", "0"],
    ]
