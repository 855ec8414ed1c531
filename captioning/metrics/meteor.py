"""METEOR by pycocoevalcap's jar, whose process answers until this one ends.

K sets of images, M = 1 score. Source: METEOR 1.5, Denkowski and Lavie, "Meteor Universal", WMT
2014.
"""

import csv
import re
import weakref
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pycocoevalcap.meteor import meteor

from captioning.data.words import ENGLISH
from captioning.files import packaged_text
from captioning.metrics.java import Java, has_java
from captioning.metrics.metric import (
    PYCOCOEVALCAP,
    Fields,
    Images,
    Metric,
    Texts,
    first_pairs,
    main_score,
)
from captioning.metrics.statistics import Array, MetricResult, Statistics

JAR = Path(meteor.__file__).with_name(meteor.METEOR_JAR)
NUMBERS = 23  # of an answer
MATCHERS = ("exact", "stem", "synonym", "paraphrase")
LINES_AT_ONCE = 20  # whose answers fit in a pipe, so that neither side waits for the other


class Matching(NamedTuple):
    """METEOR's parameters for a language, of the jar, for the matchers that pycocoevalcap has data
    for.
    """

    name: str  # of the language, in the jar
    weights: Sequence[float]  # of the first ones of `MATCHERS`
    alpha: float
    beta: float
    gamma: float
    delta: float


MATCHING = {
    language: Matching(name, tuple(map(float, weights.split())), *map(float, parameters))
    for language, name, weights, *parameters in csv.reader(
        packaged_text(__package__, "meteor.csv").splitlines()[1:]
    )
}
"""By ISO 639-1. Tables of paraphrases are there for English alone. Languages from Danish on have
parameters that are not tuned for them, and but for Russian no list of function words.
"""


class Meteor(Metric):
    """METEOR in a language, from the match statistics of the process of that language."""

    name = "METEOR"
    scores = (main_score("METEOR"),)
    languages = tuple(MATCHING)

    @classmethod
    def is_installed(cls) -> bool:
        return has_java()

    def start(self) -> None:
        process_of(self.language).start()

    def signature(self, references: Texts) -> Fields:
        # In English all matchers that there are.
        used = [] if self.language == ENGLISH else _matchers(MATCHING[self.language])
        return {"jar": "1.5", "match": "+".join(used)} | PYCOCOEVALCAP

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        """Score each caption against that of its references that fits it best."""
        lines = []
        for caption, texts in first_pairs(captions, references):
            # no text can be taken for two fields or two lines
            fields = [re.sub("[\n\r]", " ", text).replace("|||", "") for text in (*texts, caption)]
            lines.append(" ||| ".join(["SCORE", *(field.replace("  ", " ") for field in fields)]))
        rows = process_of(self.language).ask(lines, self.timeout)
        # A caption that matches its reference whole and in order is no fragment: the jar does not
        # add its only chunk.
        matched = rows[:, 4:20].reshape(-1, 8, 2).sum(1)  # [B, 2]
        whole = (matched == rows[:, :2]).all(1) & (rows[:, 20] == 1)
        rows[whole, 20] = 0
        formula = partial(_meteor, matching=MATCHING[self.language])
        return MetricResult.from_sums(Statistics((self.name,), rows, formula))


@cache
def process_of(language: str) -> "MeteorProcess":
    """The process of a language; the English one loads 1.2 GB of paraphrases in 7 CPU seconds."""
    return MeteorProcess(MATCHING[language])


class MeteorProcess:
    """The jar in its -stdio mode; one that died or answered nonsense is replaced at the next score.

    The line `SCORE ||| reference ||| .. ||| candidate` is answered with the match statistics of one
    image, from which the scores of any set of images are computed here. The jar ends with its
    standard input, so also if this process is killed.
    """

    def __init__(self, matching: Matching):
        # In other languages the words are the tokens of the data set, and none is matched by what
        # is missing
        if matching is MATCHING[ENGLISH]:
            # Unless told, the jar does not find its paraphrases if the folder's path has a blank.
            how = ["-norm", "-a", str(JAR.parent / "data" / "paraphrase-en.gz")]
        else:
            how = ["-lower", "-m", " ".join(_matchers(matching))]
        program = ["-Xmx2G", "-jar", str(JAR), "-", "-", "-stdio", "-l", matching.name]
        self._arguments = program + how
        self._java: Java | None = None
        # by line: half the captions of many systems are those of others, too
        self._rows: dict[str, Array] = {}

    def start(self) -> Java:
        """Start it, unless it runs."""
        if self._java is None or self._java.poll() is not None:
            self._rows.clear()  # an earlier one may have been another
            self._java = Java("METEOR", self._arguments)
            self._stop = weakref.finalize(self, self._java.__exit__)
        return self._java

    def ask(self, lines: Sequence[str], seconds: float) -> Array:
        """`[B, 23]`, the numbers that answer B lines; `seconds` may pass without an answer."""
        try:
            process = self.start()
            new = [line for line in dict.fromkeys(lines) if line not in self._rows]
            for first in range(0, len(new), LINES_AT_ONCE):
                asked = new[first : first + LINES_AT_ONCE]
                answers = [answer.split() for answer in process.answers(asked, seconds)]
                rows = np.array(answers, float).reshape(len(asked), NUMBERS)
                self._rows |= zip(asked, rows, strict=True)
            return np.array([self._rows[line] for line in lines])
        except BaseException:  # also Ctrl-C: later answers would be those to earlier lines
            self._java = None
            self._stop()
            raise


def _matchers(matching: Matching) -> Sequence[str]:
    return MATCHERS[: len(matching.weights)]


def _meteor(sums: Array, matching: Matching) -> Array:
    """METEOR with the jar's default parameters (section 2).

    From summed statistics: `[K, 23]` to `[K, 1]`.

    The numbers, of candidate and reference in turn: 0-1 words, 2-3 function words, 4-19 matched
    content words and matched function words by each of up to four matchers; 20 chunks; 21-22
    matched words again, as the chunks count them.
    """
    _, weights, alpha, beta, gamma, delta = matching
    matchers = np.pad(weights, (0, len(MATCHERS) - len(weights)))
    words, function_words = sums[:, 0:2], sums[:, 2:4]
    content, function = sums[:, 4:20].reshape(-1, 4, 2, 2).transpose(2, 0, 1, 3)  # [K, 4, 2] each
    matches = matchers @ (delta * content + (1 - delta) * function)  # [K, 2]
    with np.errstate(divide="ignore", invalid="ignore"):  # without a match the score is 0
        precision, recall = (
            matches / (delta * (words - function_words) + (1 - delta) * function_words)
        ).T
        f_mean = 1 / ((1 - alpha) / precision + alpha / recall)
        fragmentation = sums[:, 20] / sums[:, 21:].mean(1)
        score = f_mean * (1 - gamma * fragmentation**beta)
    return np.maximum(np.nan_to_num(score), 0)[:, None]
