"""What a metric is: its name, its scores, and how they are computed.

B images, each with N captions.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from captioning.data.words import ENGLISH
from captioning.metrics.statistics import MetricResult

GROUPS = (
    "scores",
    "BLEU without brevity penalty",
    "chance level",
    "hallucination",
    "scores by group",
    "wording",
    "attention",
    "likelihood, to compare within one vocabulary",
    "other scores",
)
MAIN, BLEU_ALONE, CHANCE, HALLUCINATION, BY_GROUP, WORDING, ATTENTION, LIKELIHOOD, OTHER = GROUPS
SHUFFLED = " (images shuffled)"
"""Ends the name of a score whose images were each replaced by another one."""
PYCOCOEVALCAP = {"pycocoevalcap": version("pycocoevalcap")}
"""The end of a signature."""

Texts = Sequence[Sequence[str]]
"""Of each image, its captions or its references."""
Fields = Mapping[str, object]
"""Of a signature, by name."""


@dataclass(frozen=True)
class ScoreType:
    """Properties of a score: group, unit and format."""

    name: str  # in `scores.json`; the loggers put `val/` or `test/` before it
    group: str = MAIN  # one of `GROUPS`: the columns it is shown with
    unit: str = "0-100"  # printed by papers without saying so; empty where it is unknown
    digits: int = 1  # after the decimal point
    best: str | None = None  # `max` or `min`, where one end is the better one
    per_image: bool = False  # `captions.jsonl` has it for each image
    mean: bool = False  # over a corpus, it is the mean of the images' scores
    metric: str = ""  # that gives it; empty for what is always measured

    @property
    def heading(self) -> str:
        """The name, with the unit unless that is 0-100 or unknown."""
        return self.name if self.unit in ("0-100", "") else f"{self.name} ({self.unit})"

    def printed(self, value: float) -> str:
        """The rounded value without its unit; a zero has no sign."""
        return f"{value:.2e}" if abs(value) >= 1e6 else f"{value:z.{self.digits}f}"


def main_score(name: str, unit: str = "0-100", best: str = "max", mean: bool = False) -> ScoreType:
    """A score of the first columns, which every image has."""
    return ScoreType(name, MAIN, unit, best=best, per_image=True, mean=mean)


@dataclass(frozen=True)
class ScoredImage:
    """An image whose captions are scored."""

    image_id: int | str
    path: Path | None = None  # where it is known


Images = Sequence[ScoredImage] | None


class Metric(ABC):
    """One or several scores of captions.

    Args:
        language: of the captions, ISO 639-1.
        timeout: seconds that another program may be silent.

    Example:
        Whether a caption begins with the same word as the first reference, a mean over images:

        >>> class FirstWord(Metric):
        ...     def compute(self, captions, references, images=None):
        ...         pairs = first_pairs(captions, references)
        ...         same = [text.split()[0] == known[0].split()[0] for text, known in pairs]
        ...         return MetricResult.from_means({self.name: same})
        >>> FirstWord().compute([["a dog"], ["one cat"]], [["a puppy"], ["a cat"]]).corpus
        {'FirstWord': 0.5}
    """

    name: str  # in `metrics=[..]`; that of the class, where it has none
    scores: Sequence[ScoreType] = ()  # those of a user's metric need not be described
    languages: Collection[str] = ()  # that it is made for; empty for any
    fields: Mapping[str, object] = {}  # of its signature
    tokenized = True  # it reads tokens with one space between them; False: texts as written

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "name"):
            cls.name = cls.__name__

    def __init__(self, language: str = ENGLISH, timeout: float = 60.0):
        self.language, self.timeout = language, timeout

    @classmethod
    def is_installed(cls) -> bool:
        """Return False if the metric is left out on this machine."""
        return True

    def start(self) -> None:  # noqa: B027
        """Start what takes time, while captions are generated."""

    def signature(self, references: Texts) -> Fields:
        """What its scores depend on, besides tokens, language and the number of references."""
        return self.fields

    @abstractmethod
    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        """Score the captions of B images, at least one caption and one reference of each."""


def first_captions(captions: Texts) -> list[str]:
    """The caption of each image that a metric of single captions scores."""
    return [texts[0] for texts in captions]


def first_pairs(captions: Texts, references: Texts) -> Iterator[tuple[str, Sequence[str]]]:
    """Of each image its first caption and its references."""
    return zip(first_captions(captions), references, strict=True)


def format_signature(metric: str, fields: Fields) -> str:
    """Join the name of a metric and the fields that have a value, as sacreBLEU does.

    Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018:
    `CIDEr|refs:5|lang:en|tok:PTB|variant:CIDEr-D|df:1000|pycocoevalcap:1.2`.
    """
    values = [f"{name}:{value}" for name, value in fields.items() if value not in (None, "")]
    return "|".join([metric, *values])
