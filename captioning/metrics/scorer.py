"""The table of scores, and the scorer of generated captions, equal to pycocoevalcap.

B is the number of scored images. Sources: BLEU, Papineni et al., ACL 2002; METEOR, Denkowski and Lavie, WMT 2014;
ROUGE-L, Lin, 2004; CIDEr (here, as in pycocoevalcap, CIDEr-D), Vedantam et al., CVPR 2015; the pipeline (PTB tokens,
closest reference length), Chen et al., "Microsoft COCO Captions", 2015; SPICE, see `captioning.metrics.spice`.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any, Final

import numpy as np
from annotated_types import DocInfo, MinLen
from pydantic import AfterValidator, BeforeValidator, SkipValidation

from captioning.config.types import Seconds, validated
from captioning.errors import CaptioningError, one_line
from captioning.metrics.java import find_java
from captioning.metrics.meteor import Meteor
from captioning.metrics.ptb import ptb_tokenize
from captioning.metrics.spice import Spice
from captioning.metrics.statistics import (
    BLEU_NAMES,
    NO_PENALTY,
    PERCENT,
    Computed,
    Statistics,
    bleu,
    cider,
    mean,
    meteor,
    rouge_l,
)

MAIN, BLEU_ALONE, WORDING, ATTENTION, OTHER = GROUPS = (
    *("scores", "BLEU without brevity penalty", "wording", "attention", "other scores"),
)


@dataclass(frozen=True, slots=True)
class Score:
    """How a score is computed, grouped and printed.

    Attributes:
        name: in `scores.json`; the loggers put `val/` or `test/` before it.
        group: one of `GROUPS`: the columns it is shown with.
        unit: 0-100 where papers print percentages without saying so; empty where it is unknown.
        digits: printed after the decimal point.
        metric: what `metrics.val=[..]` calls the metric that gives it; empty for what is always measured.
        per_image: `captions.jsonl` has it for each image.
        mean: over a corpus, it is the mean of the images' scores.
        default: its metric is computed unless other metrics are named.
        languages: that it is made for; empty for any.
        best: `max` or `min`, where one end is the better one.
    """

    name: str
    group: str
    unit: str = "0-100"
    digits: int = 1
    metric: str = ""
    per_image: bool = False
    mean: bool = False
    default: bool = True
    languages: tuple[str, ...] = ()
    best: str | None = None

    @property
    def heading(self) -> str:
        """The name, with the unit unless that is 0-100 or unknown."""
        return self.name if self.unit in ("0-100", "") else f"{self.name} ({self.unit})"

    def printed(self, value: float) -> str:
        """The rounded value without its unit; a zero has no sign."""
        return f"{value:z.{self.digits}f}"


def _score(name: str, metric: str, **more: Any) -> Score:
    return Score(name, MAIN, metric=metric, per_image=True, best="max", **more)


_ALL = (
    *(_score(name, "BLEU") for name in BLEU_NAMES),
    _score("METEOR", "METEOR", languages=("en",)),
    _score("ROUGE-L", "ROUGE-L", mean=True),
    _score("CIDEr", "CIDEr", mean=True, unit="x 100"),
    _score("SPICE", "SPICE", mean=True, languages=("en",), default=False),  # a large download, and an old Java
    *(Score(name + NO_PENALTY, BLEU_ALONE, metric="BLEU", best="max") for name in BLEU_NAMES),
    Score("bad_endings", WORDING, "%", languages=("en",)),
    Score("repeated", WORDING, "%"),
    Score("length", WORDING, "words"),
    Score("distinct-1", WORDING, "%"),
    Score("distinct-2", WORDING, "%"),
    Score("vocabulary used", WORDING, "words"),
    Score("novel", WORDING, "%"),
    Score("unseen pairs", WORDING, "%"),
    Score("ended", WORDING, "%"),
    Score("first word entropy", WORDING, "nats", 2),
    Score("word entropy", WORDING, "nats", 2),
    Score("pointing", ATTENTION, "%"),
    Score("pointing (images shuffled)", ATTENTION, "%"),
    Score("attention coverage", ATTENTION, "%"),
    Score("attention entropy", ATTENTION, "nats", 2),
    Score("attention entropy variance", ATTENTION, "nats^2", 2),
    Score("attention movement", ATTENTION, "0-1", 2),
)
SCORES: Final[Mapping[str, Score]] = {score.name: score for score in _ALL}
"""By name, in the order of tables."""
METRICS = tuple(dict.fromkeys(score.metric for score in _ALL if score.metric))
"""That `metrics.val`, `metrics.test` and `metrics` can name."""
DEFAULT_METRICS = tuple(dict.fromkeys(score.metric for score in _ALL if score.metric and score.default))
HEADLINE = "CIDEr"
"""The score that systems are ranked by."""


def score_called(name: str) -> Score:
    """The row of a score; of one that the table does not have, such as a user's, the name is all that is known."""
    return SCORES.get(name) or Score(name, OTHER, unit="", digits=2)


def scores_of(metrics: Iterable[str]) -> list[str]:
    """The main scores that these metrics give.

    Raises:
        CaptioningError: a class of the user's cannot be imported or is called like a score of the table.
    """
    chosen = list(metrics)
    own = [_own_name(name) for name in chosen if name not in METRICS and _own(name)]
    return [score.name for score in _ALL if score.metric in chosen and score.group == MAIN] + own


def _known(name: str) -> str:
    if name not in METRICS and "." not in name:
        raise ValueError(f"must be one of {', '.join(METRICS)}, or a class of your own such as my.WordF1")
    return name


Metric = Annotated[str, AfterValidator(_known), DocInfo(f"one of {', '.join(METRICS)}, or a class such as my.WordF1")]
Metrics = Annotated[Sequence[Metric], MinLen(1), BeforeValidator(lambda given: _as_list(given))]


def _as_list(given: Any) -> Any:
    """OmegaConf's lists are sequences too."""
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else given


def _own_name(path: str) -> str:
    return path.rpartition(".")[2]


def _own(path: str) -> Any:
    """The user's metric at a path such as `my.WordF1`."""
    module, _, name = path.rpartition(".")
    try:
        metric = getattr(import_module(module), name)()
    except Exception as error:  # whatever a user's code raises
        cause = f"{type(error).__name__}: {one_line(str(error))}"
        raise CaptioningError(f"the metric {path} cannot be made: {cause}") from error
    if name in SCORES or not callable(getattr(metric, "compute_score", None)):
        raise CaptioningError(
            f"the metric {path} needs a method compute_score(references, captions), and a name that no score has yet"
        )
    return metric


@dataclass(frozen=True)
class Scores:
    """The chosen metrics' scores of a set of captions, times 100 as papers print them (so CIDEr can pass 100).

    Attributes:
        corpus: scores of all B captions by name.
        per_image: B dictionaries in the ascending order of the images' positions; without BLEU without penalty.
        statistics: of each metric, what the scores of any choice of the images are computed from; a user's metric whose
            corpus score is not the mean over images has none.
    """

    corpus: dict[str, float]
    per_image: list[dict[str, float]]
    statistics: tuple[Statistics, ...] = field(default=(), compare=False, repr=False)


def _of_user(name: str, metric: Any, references: Sequence[Sequence[str]], candidates: Sequence[str]) -> Computed:
    """Called as pycocoevalcap's are, with lists by the images' numbers."""
    by_image = dict(enumerate(map(list, references)))
    corpus, per_image = metric.compute_score(by_image, {image: [text] for image, text in enumerate(candidates)})
    if len(per_image) != len(candidates):
        raise CaptioningError(f"the metric {name} gave {len(per_image)} scores for {len(candidates)} captions")
    found = mean(name, [float(score) for score in per_image])
    is_mean = np.isclose(float(corpus), found.corpus[name])
    return replace(found, corpus={name: float(corpus)}, statistics=found.statistics if is_mean else None)


class Scorer:
    """Scores captions against the references of a data set.

    Looks for Java when constructed and starts it only to score; what SPICE needs is downloaded when constructed. The
    references are tokenised once, at the first score.

    Args:
        references: for each image of the data set its references as they are, at least one.
        metrics: some of `METRICS`, or classes of the user's by their paths, such as `my.WordF1`: built without
            arguments, they have a method `compute_score` as pycocoevalcap's do, and their name is the score's.
        timeout: seconds that a Java program may take, and as many again for every 500 captions.
    """

    @validated
    def __init__(
        self,
        references: Annotated[Sequence[Sequence[str]], SkipValidation],
        metrics: Metrics = DEFAULT_METRICS,
        timeout: Seconds = 60.0,
    ) -> None:
        bare = [position for position, captions in enumerate(references) if not captions]
        if bare:
            raise CaptioningError(
                f"{len(bare)} of {len(references)} images have no reference caption, the first at position {bare[0]}: "
                "give each at least one, or leave it out"
            )
        find_java()
        self.references = references
        self.metrics = tuple(name for name in METRICS if name in metrics)
        self.timeout = timeout
        self._spice = Spice(timeout) if "SPICE" in metrics else None
        self._own = {_own_name(path): _own(path) for path in metrics if path not in METRICS}

    @cached_property
    def tokenized_references(self) -> list[list[str]]:
        """The references after `ptb_tokenize`, grouped by image as they were given."""
        tokenized = iter(ptb_tokenize([text for captions in self.references for text in captions], self.timeout))
        return [[next(tokenized) for _ in captions] for captions in self.references]

    def score(self, candidates: Mapping[int, str]) -> Scores:
        """Score one caption for each of B images, which may be a part of the data set.

        Args:
            candidates: position in `references` -> caption, not tokenised.
        """
        positions = sorted(candidates)
        if not positions:
            raise CaptioningError("there are no captions to score: at least one is needed")
        if positions[0] < 0 or positions[-1] >= len(self.references):
            raise CaptioningError(
                f"captions came for the positions {positions[0]} to {positions[-1]}, and there are references for 0 to "
                f"{len(self.references) - 1} only: score with the references of the same data set"
            )
        with ExitStack() as processes:
            # METEOR is started first, because it loads its tables while the rest is computed.
            jar = processes.enter_context(Meteor()) if "METEOR" in self.metrics else None
            references = [self.tokenized_references[position] for position in positions]
            captions = ptb_tokenize([candidates[position] for position in positions], self.timeout)
            computed: dict[str, Computed] = {}
            for name, metric in (("BLEU", bleu), ("ROUGE-L", rouge_l), ("CIDEr", cider)):
                if name in self.metrics:
                    computed[name] = metric(references, captions)
            if jar is not None:
                computed["METEOR"] = meteor(jar.match(references, captions, self.timeout))
        if self._spice is not None:
            computed["SPICE"] = mean("SPICE", self._spice.score(references, captions))
        for own_name, own in self._own.items():
            computed[own_name] = _of_user(own_name, own, references, captions)
        return _joined([computed[name] for name in (*self.metrics, *self._own)], len(positions))


def _joined(metrics: Sequence[Computed], images: int) -> Scores:
    corpus: dict[str, float] = {}
    per_image: list[dict[str, float]] = [{} for _ in range(images)]
    for metric in metrics:
        corpus |= {name: PERCENT * score for name, score in metric.corpus.items()}
        for name, scores in metric.per_image.items():
            for entry, score in zip(per_image, scores, strict=True):
                entry[name] = PERCENT * float(score)
    return Scores(corpus, per_image, tuple(metric.statistics for metric in metrics if metric.statistics is not None))
