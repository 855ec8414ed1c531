"""Differences between systems, with intervals that contain images and training.

R runs of each system, n images, M scores, y_sri the part of image i in a score of system s, run r:

    y_sri = mu_s + a_i + b_si + r_sr + e_sri,

where all but mu_s are random with mean 0. A contrast D = sum_s w_s mean_ri y_sri, such as a
difference (weights 1 and -1), has the variance

    var(sum_s w_s b_si) / n + sum_s w_s^2 (var(r_s) + var(e_s) / n) / R_s.

The last sum is estimated by the variance of each system's own R_s scores, as Welch (Biometrika
1947) does, with two changes (D) for the few runs that there are:

- Of K systems with several runs of the same images, each is moderated (Smyth, "Linear models and
  empirical Bayes methods", 2004) by the mean of all, which counts as (K - 2) / K degrees of
  freedom: two systems alone do not tell how systems differ.
- It is never below var(e_s) / n, which residuals alone give and which n images tell well: a few
  runs may agree by luck.

The first term is estimated by the variance over images of the systems' means, less what e_s adds to
it (Searle, Casella, McCulloch, "Variance Components", 1992). Degrees of freedom are Satterthwaite's
(Biometrics Bulletin 1946), interval and p are Student's. Runs of different systems must be
independent, or have `pairs`: trainings that begin from the same run are not.

A single run does not tell the variance of training. It is the mean of the K systems' then, each of
which counts once, also where it is one of the contrast. If none has several runs, the interval
contains the images alone; `Difference.training` says so.

Where a score is a mean over images, y_sri is that of the image. For a corpus score T, such as BLEU
or METEOR, it is T + (n - 1) (mean_j T_-j - T_-i), with T_-i the score of the images without i: the
jackknife (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 11).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from captioning.errors import CaptioningError
from captioning.metrics.statistics import IN_GROUP, PERCENT, Array, Statistics, group_label
from captioning.metrics.table import HEADLINES

ALPHA = 0.05
LEVEL = 1 - ALPHA
BORROWED = "training variance of other systems"
IMAGES_ONLY = "images only: training variance not included"
PAIRED = "runs in pairs"
VISIBLE = 0.05  # smaller scores are printed as 0.0: BLEU's constants make them, not captions (D)
ROUNDING = 1e-7  # of a standard error that is 0


@dataclass(frozen=True)
class Difference:
    """A contrast of one score, times 100, and its interval."""

    ours: float  # of the systems with positive weights
    theirs: float
    difference: float
    low: float | None  # None, as `high` and `p`, where nothing varies
    high: float | None
    p: float | None  # two-sided, of no difference
    training: str = ""  # empty, `BORROWED`, `IMAGES_ONLY` or `PAIRED`
    adjusted: float = 1.0  # p, once it is `corrected` for a family of differences

    @property
    def reversed(self) -> "Difference":
        """Theirs minus ours."""
        turned = replace(self, ours=self.theirs, theirs=self.ours, difference=-self.difference)
        if self.low is None or self.high is None:
            return turned
        return replace(turned, low=-self.high, high=-self.low)

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def told_apart(self) -> bool:
        """Whether the corrected p is below `ALPHA`."""
        return self.adjusted < ALPHA


@dataclass(frozen=True)
class Measured:
    """One score of a system, times 100, as contrasts need it."""

    runs: int  # R
    score: float  # the mean of the runs'
    images: Array  # `[n]`, the parts of images, means over runs
    values: Array  # `[R, n]`, those of each run
    training: float  # the variance of the runs' scores; 0 for one run, as the next
    residual: float  # var(e_s)
    test: object = None  # equal for systems with the same images and references
    pairs: Sequence[object] = ()  # what a run shares with the run of another system, `[R]`

    @classmethod
    def from_values(cls, values: Array) -> "Measured":
        """Reduce the parts of images in the scores of runs, `[R, n]`.

        Example:
            Two runs of a system on two images, R = n = 2. The runs score 40 and 46, with a variance
            of 18. Beyond the means of runs and of images, 1 is left in each cell, with
            (R - 1) (n - 1) = 1 degree of freedom:

            >>> system = Measured.from_values(np.array([[30.0, 50.0], [34.0, 58.0]]))
            >>> system.score, system.images.tolist(), system.training, system.residual
            (43.0, [32.0, 54.0], 18.0, 4.0)
        """
        runs, images = values.shape
        by_image, by_run = values.mean(0), values.mean(1)
        score = float(np.nanmean(values, axis=1).mean())
        if runs == 1:
            return cls(runs, score, by_image, values, 0.0, 0.0)
        rest = values - by_image - by_run[:, None] + by_run.mean()
        residual = float((rest**2).sum()) / ((runs - 1) * (images - 1))
        return cls(runs, score, by_image, values, float(by_run.var(ddof=1)), residual)


System = Mapping[str, Measured]  # its scores, by name


def measure(
    runs: Sequence[Sequence[Statistics]],
    groups: Sequence[str] = (),
    test: object = None,
    pairs: Sequence[object] = (),
) -> dict[str, Measured]:
    """Reduce each run's `Scores.statistics`, of the same metrics and images in the same order.

    The main scores of each group of two images or more follow; `groups` has that of each image,
    empty for none. `test` stands for the images and their references: systems of another test lend
    no variance. `pairs` has what each run shares with a run of other systems; see `contrast`.

    Scores that a run has not, as 0 / 0, are left out. One that it has not without a certain image
    is NaN there, and differences have no interval.
    """
    names = [name for metric in runs[0] for name in metric.names]
    values = np.stack([np.hstack([*map(parts_of_images, run)]) for run in runs])
    measured = {
        name: replace(Measured.from_values(parts), test=test, pairs=pairs)
        for name, parts in zip(names, np.moveaxis(values, -1, 0), strict=True)
        if np.isfinite(parts).any(1).all()
    }
    for group in sorted(name for name, images in Counter(groups).items() if name and images > 1):
        rows = [row for row, own in enumerate(groups) if own == group]
        label = group_label(group, len(rows))
        members = [[replace(each, rows=each.rows[rows]) for each in run] for run in runs]
        of_group = measure(members, (), (test, label), pairs)
        for name in filter(of_group.get, HEADLINES):
            measured[f"{name}{IN_GROUP}{label}"] = of_group[name]
    return measured


def parts_of_images(metric: Statistics) -> Array:
    """`[n, M]`, each image's part in a metric's scores, times 100; their means are the scores.

    Example:
        The jackknife of an error rate, M = 1: images of 1 and 3 errors in 4 words each make 4 / 8.
        Without the first it is 3 / 4, without the second 1 / 4, 1 / 2 on average. The parts are
        1 / 2 + (2 - 1) (1 / 2 - 3 / 4) and 1 / 2 + (2 - 1) (1 / 2 - 1 / 4):

        >>> rows = np.array([[1.0, 4.0], [3.0, 4.0]])
        >>> rate = Statistics(("WER",), rows, lambda sums: sums[:, :1] / sums[:, 1:])
        >>> parts_of_images(rate).tolist()
        [[25.0], [75.0]]
    """
    images, sums = len(metric.rows), metric.rows.sum(0)
    if images < 2:
        advice = "give the captions of more images"
        raise CaptioningError(f"the score of one image has no interval: {advice}")
    score, without = metric.formula(sums[None]), metric.formula(sums - metric.rows)
    mean = np.where(np.isnan(without), score, without).mean(0)
    return PERCENT * (score + (images - 1) * (mean - without))


def compare(ours: System, theirs: System, lenders: Sequence[System] = ()) -> dict[str, Difference]:
    """Compare two systems by each score that both have; see `contrast`."""
    found = {}
    for name in filter(theirs.get, ours):
        known = [system[name] for system in lenders if name in system]
        found[name] = contrast((ours[name], theirs[name]), (1, -1), known)
    return found


def contrast(
    systems: Sequence[Measured], weights: Sequence[float], lenders: Iterable[Measured] = ()
) -> Difference:
    """Estimate a contrast of S systems by one score.

    If the runs of all systems have the same `pairs`, in the same order, those at one place belong
    together: what they share, such as a subset of the training images, is no part of the variance.

    Args:
        systems: S of them, of the same images in the same order.
        weights: S of them.
        lenders: further systems, which with `systems` moderate the variance of training, and give
            it to those of one run; only those of the same test count.

    Example:
        Two systems of two runs on three images. The first is better by 10 on each, and the second
        run of each is better by 2:

        >>> values = np.array([[30.0, 50.0, 40.0], [32.0, 52.0, 42.0]])
        >>> better, worse = Measured.from_values(values + 10), Measured.from_values(values)
        >>> row = contrast([better, worse], [1, -1])
        >>> row.ours, row.theirs, row.difference, round(row.low, 1), round(row.high, 1)
        (51.0, 41.0, 10.0, 3.9, 16.1)

        As pairs, whose runs share what makes them differ, nothing varies:

        >>> shared = [replace(system, pairs=["seed 1", "seed 2"]) for system in (better, worse)]
        >>> contrast(shared, [1, -1]).low is None
        True
    """
    from scipy.special import stdtr, stdtrit  # here, because it takes a third of a second

    pairs = list(zip(systems, weights, strict=True))
    ours = sum(weight * system.score for system, weight in pairs if weight > 0)
    theirs = sum(-weight * system.score for system, weight in pairs if weight < 0)
    shared, training = systems[0].pairs, ""
    if len(shared) > 1 and all(system.pairs == shared for system in systems):
        values = np.sum([weight * system.values for system, weight in pairs], axis=0)
        systems, weights, lenders, training = [Measured.from_values(values)], [1], (), PAIRED
    parts = _parts(systems, weights, lenders)
    if any(system.runs == 1 for system in systems):
        training = BORROWED if len(parts) > 1 else IMAGES_ONLY
    variance, difference = sum(part for part, _ in parts), ours - theirs
    if not variance > ROUNDING**2 or max(abs(ours), abs(theirs)) < VISIBLE:
        return Difference(ours, theirs, difference, None, None, None, training)
    freedom = 1 / sum((part / variance) ** 2 / each for part, each in parts)
    error = math.sqrt(variance)
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(difference) / error))
    return Difference(ours, theirs, difference, difference - half, difference + half, p, training)


Parts = list[tuple[float, float]]  # of a variance, with degrees of freedom; the images' is last


def _parts(
    systems: Sequence[Measured], weights: Sequence[float], lenders: Iterable[Measured]
) -> Parts:
    """The parts of the variance of a contrast."""
    images = len(systems[0].images)
    # each once, as a table's systems lend to one another
    test = systems[0].test
    lent = [each for each in lenders if each.test == test and math.isfinite(each.training)]
    several = {id(system): system for system in (*systems, *lent) if system.runs > 1}
    shares = dict.fromkeys(several, 0.0)
    by_image, residuals = np.zeros(images), 0.0
    for system, weight in zip(systems, weights, strict=True):
        by_image += weight * system.images
        # (D) a single run has the mean variance of all that have several
        of = [id(system)] if system.runs > 1 else list(several)
        for key in of:
            share = weight**2 / system.runs / len(of)
            shares[key] += share
            residuals += share * several[key].residual
    parts = []
    mean = fmean([system.training for system in several.values()] or [0.0])
    prior = max(0.0, 1 - 2 / max(len(several), 1))
    for key, system in several.items():
        own = system.runs - 1
        moderated = (prior * mean + own * system.training) / (prior + own)
        parts.append((shares[key] * max(moderated, system.residual / images), prior + own))
    of_images = (float(by_image.var(ddof=1)) - residuals) / images
    return [*parts, (max(of_images, 0.0), images - 1)]


def corrected(family: Mapping[Any, Difference]) -> dict[Any, Difference]:
    """Fill `adjusted` by `holm` for all differences that a table speaks of; no p counts as 1."""
    adjusted = iter(holm([1.0 if each.p is None else each.p for each in family.values()]))
    return {key: replace(each, adjusted=next(adjusted)) for key, each in family.items()}


def holm(p: Sequence[float]) -> list[float]:
    """Adjust the p-values of several comparisons, by Holm's step-down correction.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979: the chance of one false
    difference or more among those with an adjusted p below a level is below that level.

    Example:
        The smallest counts three times, the next one twice; none is below a smaller one:

        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    steps = np.asarray(p)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted.tolist()
