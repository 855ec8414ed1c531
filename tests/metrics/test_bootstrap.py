"""The bootstrap against brute force, against all samples there are, and its promises on data of a
known difference.
"""

import itertools
import math

import numpy as np
import pytest

from captioning.errors import CaptioningError
from captioning.metrics import Scorer, bootstrap
from captioning.metrics.bootstrap import Difference, difference, resample, resamples
from captioning.metrics.statistics import Statistics, mean_statistics

OTHERS = ["a dog", "people at a bus", "a red bus drives down the street", "a woman in a hat"]


@pytest.fixture(scope="module")
def pair(corpus):
    """The corpus' candidates, and others that differ in the first images."""
    scorer = Scorer(corpus.references, metrics=["BLEU", "ROUGE-L", "CIDEr"])
    ours, theirs = corpus.candidates, OTHERS + corpus.candidates[len(OTHERS) :]
    return [scorer.score(dict(enumerate(captions))) for captions in (ours, theirs)]


def paired_bootstrap(ours, theirs, samples=1000, seed=0) -> dict[str, Difference]:
    """Of systems of one run."""
    return difference(resample([ours], samples, seed, 0), resample([theirs], samples, seed, 1))


def interval(differences):
    return np.quantile(differences, [0.025, 0.975])


def test_every_sample_is_scored_anew(pair):
    """By the statistics of each metric, which are compared with its own scores in test_ngrams."""
    ours, theirs = pair
    samples, seed = 60, 5
    found = paired_bootstrap(ours.statistics, theirs.statistics, samples, seed)
    counts = np.concatenate(list(resamples(len(ours.per_image), samples, seed)))
    for one, other in zip(ours.statistics, theirs.statistics, strict=True):
        differences = one.scores(counts) - other.scores(counts)
        for name, sampled in zip(one.names, differences.T, strict=True):
            row = found[name]
            assert [row.low, row.high] == pytest.approx(list(interval(sampled)), abs=1e-9)
            on_one_side = min((sampled <= 0).sum(), (sampled >= 0).sum())
            assert row.p == pytest.approx(min(1, 2 * (on_one_side + 1) / (samples + 1)))
            both = ours.corpus[name], theirs.corpus[name]
            assert (row.ours, row.theirs) == pytest.approx(both, abs=1e-9)
            assert row.difference == pytest.approx(both[0] - both[1], abs=1e-9)
    for name in ("ROUGE-L", "CIDEr"):  # means are those of the images drawn
        images = np.array(
            [a[name] - b[name] for a, b in zip(ours.per_image, theirs.per_image, strict=True)]
        )
        expected = list(interval(counts @ images / len(images)))
        assert [found[name].low, found[name].high] == pytest.approx(expected, abs=1e-9)


def test_runs_are_drawn_too_against_all_samples_there_are():
    """Of four images there are 256 samples, of three runs 9 of two; the other system has one run,
    which is in each.
    """
    ours = np.array([[0.52, 0.11, 0.93, 0.38], [0.47, 0.26, 0.66, 0.41], [0.31, 0.15, 0.82, 0.22]])
    theirs = np.array([0.3, 0.35, 0.2, 0.45])
    every = np.array([
        ours[np.ix_(runs, images)].mean() - theirs[list(images)].mean()
        for images in itertools.product(range(4), repeat=4)
        for runs in itertools.product(range(3), repeat=2)
    ])  # fmt: skip
    samples = 20_000
    found = difference(
        resample([[mean_statistics({"m": run})] for run in ours], samples, 0, 0),
        resample([[mean_statistics({"m": theirs})]], samples, 0, 1),
    )["m"]
    p = 2 * min((every <= 0).mean(), (every >= 0).mean())
    assert found.difference == pytest.approx(100 * (ours.mean() - theirs.mean()))
    assert found.p == pytest.approx(p, abs=2 * 4 * np.sqrt(p / 2 / samples))
    assert found.low == pytest.approx(100 * np.quantile(every, 0.025), abs=1)
    assert found.high == pytest.approx(100 * np.quantile(every, 0.975), abs=1)


def test_runs_of_each_system_vary_on_their_own():
    """Where the images do not vary, by the variance of a mean of R runs, s^2 / R."""
    runs, samples = np.array([50.0, 53.0, 59.0, 51.0]), 40_000
    statistics = [[mean_statistics({"m": np.full(5, run / 100)})] for run in runs]
    one, other = (resample(statistics, samples, 3, stream).samples[:, 0] for stream in (0, 1))
    assert one.var() == pytest.approx(runs.var(ddof=1) / len(runs), rel=0.05)
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(samples)


@pytest.mark.parametrize("block", [1, 30, 10**7])
def test_resamples_draw_with_replacement(monkeypatch, block):
    monkeypatch.setattr(bootstrap, "BLOCK_NUMBERS", block)
    counts = np.concatenate(list(resamples(10, 4000, 1)))
    assert counts.shape == (4000, 10)
    assert (counts.sum(axis=1) == 10).all()
    # of a multinomial: mean 1, variance 1 - 1/10, covariance -1/10; four standard errors
    assert counts.mean(axis=0) == pytest.approx(np.ones(10), abs=4 * np.sqrt(0.9 / 4000))
    covariance = np.cov(counts.T)
    assert covariance.diagonal() == pytest.approx(np.full(10, 0.9), abs=0.15)
    assert covariance[0, 1:] == pytest.approx(np.full(9, -0.1), abs=0.08)


@pytest.mark.parametrize("share", [0.5, 0.4])
def test_intervals_cover_the_difference_and_equal_systems_are_rarely_called_different(share):
    """A corpus statistic, matches over words, of systems that match shares of words in captions of
    all lengths.
    """
    rng = np.random.default_rng(0)
    hits, ps, trials = 0, [], 300
    for trial in range(trials):
        words = rng.integers(3, 20, size=80)
        luck = rng.normal(0, 0.08, size=80)  # what an image does to both systems
        systems = [
            np.stack([rng.binomial(words, mine + luck), words], axis=1) for mine in (0.5, share)
        ]
        ratios = [
            [Statistics(("m",), each.astype(float), lambda sums: sums[:, :1] / sums[:, 1:])]
            for each in systems
        ]
        found = paired_bootstrap(*ratios, 300, trial)["m"]
        hits += found.low <= 100 * (0.5 - share) <= found.high
        ps.append(found.p)
    assert 0.91 <= hits / trials <= 0.98
    rejected = np.mean(np.array(ps) < 0.05)
    assert rejected > 0.9 if share < 0.5 else 0.02 <= rejected <= 0.09


def test_equal_seeds_signs_and_systems(pair):
    ours, theirs = pair
    there, again = (paired_bootstrap(ours.statistics, theirs.statistics, 100, 3) for _ in range(2))
    assert there == again
    back = paired_bootstrap(theirs.statistics, ours.statistics, 100, 3)
    for name, found in there.items():
        turned = found.theirs, found.ours, -found.high, -found.low, found.p
        row = back[name]
        expected = pytest.approx(turned, abs=1e-9)
        assert (row.ours, row.theirs, row.low, row.high, row.p) == expected
    for found in paired_bootstrap(ours.statistics, ours.statistics).values():
        assert (found.difference, found.low, found.high) == (0, 0, 0)
        assert math.isnan(found.p)  # nothing can vary


def test_one_image_says_nothing():
    with pytest.raises(CaptioningError, match="more images"):
        paired_bootstrap([mean_statistics({"m": [0.5]})], [mean_statistics({"m": [0.4]})])
