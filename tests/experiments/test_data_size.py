"""Curves of a score over the number of training images, on numbers drawn from known curves."""

import numpy as np
import pytest

from experiments.data_size.curves import EXPONENTS, bootstrap, crossings, fit

SIZES = np.array([750.0, 1500, 3000, 6000])


@pytest.mark.parametrize("exponent", EXPONENTS[[5, 20, 30]])
def test_exact_curves_are_found_again(exponent: float) -> None:
    a, b = 60.0, 20 * 750**exponent  # 40 at 750 images
    scores = a - b * SIZES**-exponent
    (found,) = (fit(SIZES, scores[None]),)
    assert found.c[0] == exponent
    np.testing.assert_allclose([found.a[0], found.b[0]], [a, b], rtol=1e-6)
    np.testing.assert_allclose(found.at(12000)[0], a - b * 12000**-exponent, rtol=1e-6)


def test_a_score_that_falls_with_data_is_fitted_by_its_mean() -> None:
    found = fit(SIZES, np.array([[50.0, 45, 40, 35]]))
    assert found.b[0] == 0
    assert found.at(1e6)[0] == pytest.approx(42.5)


def test_the_bootstrap_has_the_variance_of_seeds_and_images() -> None:
    random = np.random.default_rng(0)
    runs, images, seed, image = 3, 400, 2.0, 30.0
    scores = [
        50 + random.normal(0, seed) + random.normal(0, image, size=images) for _ in range(runs)
    ]
    drawn = random.multinomial(images, np.full(images, 1 / images), size=4000)
    samples = bootstrap({6000: scores}, drawn, random)[:, 0]
    means, errors = np.mean(scores, axis=1), np.cov(scores) / images
    # of two drawn runs: their spread, and the images, which two draws share with a chance of 1/3
    same, mean = np.trace(errors) / runs, errors.mean()
    expected = means.var(ddof=1) / runs + same / 2 + mean / 2
    assert samples.mean() == pytest.approx(means.mean(), abs=0.1)
    assert samples.var() == pytest.approx(expected, rel=0.08)


def test_curves_that_cross_are_told_from_curves_that_do_not() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, size=(500, 4))
    rising = np.array([30.0, 35, 40, 45]) + noise
    samples = {"one": rising, "above": rising + 5, "steeper": rising + np.array([-3, -1, 1, 3])}
    shares = [line.split("|")[-2].strip() for line in crossings(samples, SIZES)[2:]]
    assert shares == ["0", "100", "0"]
