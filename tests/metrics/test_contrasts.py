"""Contrasts against analysis of variance by hand, SciPy's tests in special cases, leaving out each
image in turn, and their promises on data of a known difference.
"""

import itertools
from statistics import fmean, variance

import numpy as np
import pytest
from refusals import refuses
from scipy import stats
from scored import CANDIDATES, REFERENCES

from captioning.metrics import Scorer
from captioning.metrics.contrasts import (
    BORROWED,
    IMAGES_ONLY,
    Measured,
    compare,
    contrast,
    exact_difference,
    measure,
    parts_of_images,
)
from captioning.metrics.statistics import Statistics, mean_statistics

OTHERS = ["a dog", "people at a bus", "a red bus drives down the street", "a woman in a hat"]
OURS = [[52.0, 11, 93, 38, 60], [47, 26, 66, 41, 55], [31, 15, 82, 22, 49]]
THEIRS = [[30.0, 35, 20, 45, 51], [38, 22, 41, 44, 40]]


def system(rows):
    return Measured.from_values(np.array(rows, float))


@pytest.fixture(scope="module")
def pair(corpus):
    """The corpus' candidates, and others that differ in the first images."""
    scorer = Scorer(corpus.references, metrics=["BLEU", "ROUGE-L", "CIDEr"])
    ours, theirs = corpus.candidates, OTHERS + corpus.candidates[len(OTHERS) :]
    return [scorer.score(dict(enumerate(captions))) for captions in (ours, theirs)]


def by_hand(systems, weights):
    """Variance and degrees of freedom of a contrast, by mean squares in plain sums."""
    images = len(systems[0][0])
    weighted = zip(weights, systems, strict=True)
    parts, residuals = [], 0.0
    combined = [0.0] * images
    for weight, rows in weighted:
        runs = len(rows)
        of_image = [fmean(column) for column in zip(*rows, strict=True)]
        of_run = [fmean(row) for row in rows]
        grand = fmean(of_run)
        squares = sum(
            (rows[r][i] - of_image[i] - of_run[r] + grand) ** 2
            for r, i in itertools.product(range(runs), range(images))
        )
        residuals += weight**2 * squares / ((runs - 1) * (images - 1)) / runs
        parts.append((weight**2 * variance(of_run) / runs, runs - 1))
        combined = [old + weight * new for old, new in zip(combined, of_image, strict=True)]
    parts.append((max(variance(combined) - residuals, 0) / images, images - 1))
    whole = sum(part for part, _ in parts)
    return whole, whole**2 / sum(part**2 / freedom for part, freedom in parts)


@pytest.mark.parametrize(
    "systems, weights",
    [
        ([OURS, THEIRS], [1, -1]),
        ([OURS, THEIRS, THEIRS[::-1], [row[::-1] for row in OURS]], [1, -1, -1, 1]),
        ([OURS, THEIRS, [[20.0, 30, 60, 25, 21], [22, 25, 50, 30, 26]]], [0.5, 0.5, -1]),
    ],
)
def test_analysis_of_variance_by_hand(systems, weights):
    found = contrast([system(rows) for rows in systems], weights)
    value = sum(w * np.mean(rows) for w, rows in zip(weights, systems, strict=True))
    whole, freedom = by_hand(systems, weights)
    half = stats.t.ppf(0.975, freedom) * whole**0.5
    assert found.difference == pytest.approx(value)
    assert found.ours - found.theirs == pytest.approx(value)
    assert (found.low, found.high) == pytest.approx((value - half, value + half))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(value) / whole**0.5, freedom))
    assert found.training == ""


def test_single_runs_have_the_paired_test_of_images_and_say_so():
    found = contrast([system(OURS[:1]), system(THEIRS[:1])], [1, -1])
    expected = stats.ttest_rel(OURS[0], THEIRS[0])
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert found.training == IMAGES_ONLY


def test_a_single_run_borrows_the_variance_of_training():
    """Of the mean of two systems' variances, with the freedom of that mean."""
    lenders = [system(THEIRS), system([[10.0, 20, 30, 40, 50], [14, 30, 28, 45, 53]])]
    found = contrast([system(OURS[:1]), system(OURS[1:2])], [1, -1], lenders)
    of_images = np.var(np.subtract(OURS[0], OURS[1]), ddof=1)
    residual = fmean(lender.residual for lender in lenders)
    training = fmean(lender.training for lender in lenders)
    freedom = 4 * training**2 / sum(lender.training**2 for lender in lenders)
    images = max(of_images - 2 * residual, 0) / 5
    whole = images + 2 * training
    whole_freedom = whole**2 / (images**2 / 4 + (2 * training) ** 2 / freedom)
    assert found.high - found.low == pytest.approx(
        2 * stats.t.ppf(0.975, whole_freedom) * whole**0.5
    )
    assert found.training == BORROWED
    # a partner of several runs lends too
    assert contrast([system(OURS), system(THEIRS[:1])], [1, -1]).training == BORROWED


def test_parts_of_means_are_the_scores_of_images(pair):
    for metric in pair[0].statistics:
        for name, part in zip(metric.names, parts_of_images(metric).T, strict=True):
            assert part.mean() == pytest.approx(pair[0].corpus[name], abs=1e-9)
            if name in ("ROUGE-L", "CIDEr"):
                images = [row[name] for row in pair[0].per_image]
                assert part == pytest.approx(images, abs=1e-9)


def test_parts_of_a_corpus_score_leave_out_each_image_in_turn():
    """BLEU scored anew without it."""
    scorer, n = Scorer(REFERENCES, metrics=["BLEU"]), len(CANDIDATES)
    captions = dict(enumerate(CANDIDATES))
    every = scorer.score(captions)
    found = measure([every.statistics])
    for name in ("BLEU-1", "BLEU-2", "BLEU-1 (no brevity penalty)"):
        without = []
        for left_out in range(n):
            rest = {image: text for image, text in captions.items() if image != left_out}
            without.append(scorer.score(rest).corpus[name])
        expected = [every.corpus[name] + (n - 1) * (fmean(without) - score) for score in without]
        assert found[name].images == pytest.approx(expected)


def test_a_ratio_has_the_variance_of_the_delta_method():
    """Of sums of hits over words: var(hits - ratio x words) / (n mean(words)^2)."""
    rng = np.random.default_rng(0)
    words = rng.integers(3, 20, size=400).astype(float)
    hits = rng.binomial(words.astype(int), 0.4).astype(float)
    ratio = hits.sum() / words.sum()
    metric = Statistics(("m",), np.stack([hits, words], 1), lambda sums: sums[:, :1] / sums[:, 1:])
    error = np.std(hits - ratio * words, ddof=1) / words.mean() / 20
    found = compare(measure([[metric]]), measure([[mean_statistics({"m": np.zeros(400)})]]))["m"]
    half = stats.t.ppf(0.975, 399) * 100 * error
    assert found.high - found.difference == pytest.approx(half, rel=0.01)


@pytest.mark.parametrize("share", [0.5, 0.4])
def test_intervals_cover_the_difference_and_equal_systems_are_rarely_called_different(share):
    """A corpus statistic, matches over words, of systems that match shares of words in captions of
    all lengths.
    """
    rng = np.random.default_rng(0)
    hits, ps, trials = 0, [], 1000
    for _ in range(trials):
        words = rng.integers(3, 20, size=80)
        luck = rng.normal(0, 0.08, size=80)  # what an image does to both systems
        counts = [np.stack([rng.binomial(words, s + luck), words], axis=1) for s in (0.5, share)]
        ratios = [
            Statistics(("m",), each.astype(float), lambda sums: sums[:, :1] / sums[:, 1:])
            for each in counts
        ]
        found = compare(*(measure([[ratio]]) for ratio in ratios))["m"]
        hits += found.low <= 100 * (0.5 - share) <= found.high
        ps.append(found.p)
    # four standard errors of 95 % and 5 %
    assert hits / trials == pytest.approx(0.95, abs=0.0276)
    rejected = np.mean(np.array(ps) < 0.05)
    assert rejected > 0.9 if share < 0.5 else rejected == pytest.approx(0.05, abs=0.0276)


def test_signs_of_a_pair(pair):
    ours, theirs = (measure([scores.statistics]) for scores in pair)
    there, back = compare(ours, theirs), compare(theirs, ours)
    for name, found in there.items():
        turned = back[name].reversed
        row = found.ours, found.theirs, found.low, found.high, found.p
        expected = turned.ours, turned.theirs, turned.low, turned.high, turned.p
        assert row == pytest.approx(expected, abs=1e-9)


def test_what_does_not_vary_has_no_interval(pair):
    """Equal systems; scores that are 0 but for BLEU's constants."""
    ours = measure([pair[0].statistics])
    for found in compare(ours, ours).values():
        assert (found.difference, found.low, found.high, found.p) == (0, None, None, None)
        assert not found.excludes_zero
    scorer = Scorer([["a dog runs"], ["two cats sleep on a bed"]], metrics=["BLEU"])
    mute = [
        measure([scorer.score(dict(enumerate(captions))).statistics])
        for captions in (["a b c d e", "two f g h"], ["dog p", "q two r s t u"])
    ]
    found = compare(*mute)["BLEU-4"]
    assert found.difference != 0
    assert found.p is None


def test_one_image_says_nothing():
    with refuses("more images"):
        measure([[mean_statistics({"m": [0.5]})]])


@pytest.mark.parametrize("ours, theirs, both", [(9, 2, 1), (5, 0, 0), (0, 1, 0), (7, 7, 3)])
def test_numbers_of_images_by_the_exact_test(ours, theirs, both):
    found = exact_difference(ours, theirs, both)
    only, either = ours - both, ours + theirs - 2 * both
    expected = stats.binomtest(only, either)
    shares = expected.proportion_ci(method="exact")
    assert found.p == pytest.approx(expected.pvalue)
    assert found.low == pytest.approx(either * (2 * shares.low - 1))
    assert found.high == pytest.approx(either * (2 * shares.high - 1))
