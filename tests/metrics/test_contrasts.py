"""Contrasts against analysis of variance by hand, SciPy's tests in special cases, leaving out each
image in turn, and their promises on data of a known difference.
"""

import itertools
import math
from dataclasses import replace
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
    PAIRED,
    Measured,
    compare,
    contrast,
    measure,
    parts_of_images,
)
from captioning.metrics.statistics import MetricResult, Statistics, mean_statistics
from captioning.metrics.wording import exact_difference

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


def squares_of(rows):
    """The variance of run means and of residuals, by sums of squares."""
    runs, images = len(rows), len(rows[0])
    of_image = [fmean(column) for column in zip(*rows, strict=True)]
    of_run = [fmean(row) for row in rows]
    grand = fmean(of_run)
    squares = sum(
        (rows[r][i] - of_image[i] - of_run[r] + grand) ** 2
        for r, i in itertools.product(range(runs), range(images))
    )
    return variance(of_run), squares / ((runs - 1) * (images - 1))


def by_hand(systems, weights, lenders=()):
    """Variance and degrees of freedom of a contrast, each of `systems` and `lenders` a list of
    runs. Those of several runs, which are K, lend to single ones and moderate each other.
    """
    images = len(systems[0][0])
    several = [rows for rows in (*systems, *lenders) if len(rows) > 1]
    k = len(several)
    found = [squares_of(rows) for rows in several]
    prior = (k - 2) / k if k > 2 else 0
    mean = fmean(training for training, _ in found)
    parts, residuals = [], 0.0
    for place, (rows, (training, residual)) in enumerate(zip(several, found, strict=True)):
        own = len(rows) - 1
        lent = sum(w**2 for w, other in zip(weights, systems, strict=True) if len(other) == 1) / k
        # lenders follow the systems
        mine = [w for w, other in zip(weights, systems, strict=True) if other is rows]
        share = lent + (mine[0] ** 2 / len(rows) if mine and place < len(systems) else 0)
        moderated = (prior * mean + own * training) / (prior + own)
        parts.append((share * max(moderated, residual / images), own + prior))
        residuals += share * residual
    of_images = [[fmean(column) for column in zip(*rows, strict=True)] for rows in systems]
    combined = [
        sum(w * value for w, value in zip(weights, values, strict=True))
        for values in zip(*of_images, strict=True)
    ]
    parts.append((max(variance(combined) - residuals, 0) / images, images - 1))
    whole = sum(part for part, _ in parts)
    return whole, whole**2 / sum(part**2 / freedom for part, freedom in parts)


OTHER = [[20.0, 30, 60, 25, 21], [22, 25, 50, 30, 26]]
AGREEING = [[20.0, 30, 60, 25, 21], [29, 21, 50, 27, 28.5]]
"""By luck: their means differ by a tenth, residuals tell of more."""


@pytest.mark.parametrize(
    "systems, weights, lenders, training",
    [
        ([OURS, THEIRS], [1, -1], [], ""),
        ([OURS, THEIRS], [1, -1], [OTHER, OTHER[::-1] + OURS], ""),
        ([OURS, THEIRS, THEIRS[::-1], [row[::-1] for row in OURS]], [1, -1, -1, 1], [], ""),
        ([OURS, THEIRS, OTHER], [0.5, 0.5, -1], [], ""),
        ([OURS, AGREEING], [1, -1], [], ""),
        ([OURS, THEIRS[:1]], [1, -1], [], BORROWED),  # of its partner alone
        ([OURS, THEIRS[:1]], [1, -1], [OTHER, AGREEING], BORROWED),
        ([OURS[:1], THEIRS[:1]], [1, -1], [OTHER, AGREEING], BORROWED),
        ([OURS[:1], THEIRS[:1]], [1, -1], [OTHER], BORROWED),
    ],
)
def test_analysis_of_variance_by_hand(systems, weights, lenders, training):
    lent = [system(rows) for rows in lenders]
    found = contrast([system(rows) for rows in systems], weights, lent)
    value = sum(w * np.mean(rows) for w, rows in zip(weights, systems, strict=True))
    whole, freedom = by_hand(systems, weights, lenders)
    half = stats.t.ppf(0.975, freedom) * whole**0.5
    assert found.difference == pytest.approx(value)
    assert found.ours - found.theirs == pytest.approx(value)
    assert (found.low, found.high) == pytest.approx((value - half, value + half))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(value) / whole**0.5, freedom))
    assert found.training == training


@pytest.mark.parametrize("lender", [{"test": "other images"}, {"training": math.nan}], ids=str)
def test_some_lend_nothing(lender):
    """Systems of other images, and those whose runs have no score of some set of images."""
    systems, lenders = [system(OURS), system(THEIRS[:1])], [system(OTHER)]
    other = replace(system(AGREEING), **lender)
    assert contrast(systems, [1, -1], [*lenders, other]) == contrast(systems, [1, -1], lenders)


def test_seeds_that_agree_by_luck_do_not_narrow_an_interval():
    training, residual = squares_of(AGREEING)
    assert training < residual / 5 / 10
    floor = 2 * (residual / 5 / 2) ** 0.5
    found = contrast([system(AGREEING), system(AGREEING)], [1, -1])
    assert found.high - found.low > 2 * floor


def test_runs_that_belong_together_are_paired():
    """What both runs of a pair share is no part of the variance, as of a system of differences."""
    shared = [[10.0], [-25.0], [4.0]]
    ours, theirs = (np.array(rows) + shared for rows in (OURS, [*THEIRS, THEIRS[0]]))

    def pairs(*systems):
        measured = [replace(system(rows), pairs=["a", "b", "c"]) for rows in systems]
        return contrast(measured, [1, -1])

    found, unshared = pairs(ours, theirs), pairs(OURS, [*THEIRS, THEIRS[0]])
    assert (found.low, found.high, found.p) == pytest.approx(
        (unshared.low, unshared.high, unshared.p)
    )
    whole, freedom = by_hand([(ours - theirs).tolist()], [1])
    half = stats.t.ppf(0.975, freedom) * whole**0.5
    assert found.high - found.difference == pytest.approx(half)
    assert found.training == PAIRED
    independent = contrast([system(ours), system(theirs)], [1, -1])
    assert independent.high - independent.low > found.high - found.low


def test_single_runs_have_the_paired_test_of_images_and_say_so():
    found = contrast([system(OURS[:1]), system(THEIRS[:1])], [1, -1])
    expected = stats.ttest_rel(OURS[0], THEIRS[0])
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert found.training == IMAGES_ONLY


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


def test_a_score_that_one_image_alone_makes_has_parts_of_the_others():
    """Without it nothing is divided by nothing, in whose place the score itself stands."""
    alone = MetricResult.from_shares(["m"], [[(2, 4)], [(0, 0)], [(0, 0)]]).statistics
    assert parts_of_images(alone).flatten() == pytest.approx([math.nan, 50, 50], nan_ok=True)
    measured = measure([[alone]])
    assert measured["m"].score == 50
    other = measure([[mean_statistics({"m": [0.5, 0.2, 0.3]})]])
    assert compare(measured, other)["m"].low is None


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
