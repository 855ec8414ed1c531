"""METEOR by pycocoevalcap's jar, one process that answers until its object goes.

K sets of images, M = 1 score. Source: METEOR 1.5, Denkowski and Lavie, "Meteor Universal", WMT
2014.
"""

import re
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pycocoevalcap.meteor import meteor

from captioning.metrics.java import Java, allowed
from captioning.metrics.statistics import Array, Statistics

JAR = Path(meteor.__file__).with_name(meteor.METEOR_JAR)
STDERR_LINES = 100  # the last ones, for the message of a process that dies
LINES_AT_ONCE = 20  # whose answers fit in a pipe, so that neither side waits for the other


class Matching(NamedTuple):
    """METEOR's parameters for a language: those of the jar, for the matchers that pycocoevalcap has
    data for.
    """

    name: str  # of the language, in the jar
    weights: Mapping[str, float]  # of the matchers, in the jar's order
    alpha: float = 0.75
    beta: float = 1.4
    gamma: float = 0.7
    delta: float = 0.5


def _stemmed(name: str, stem: float = 0.5, *parameters: float) -> Matching:
    return Matching(name, {"exact": 1.0, "stem": stem}, *parameters)


MATCHING: Mapping[str, Matching] = {
    "en": Matching(
        "en", {"exact": 1.0, "stem": 0.6, "synonym": 0.8, "paraphrase": 0.6}, 0.85, 0.2, 0.6, 0.75
    ),
    "cs": Matching("cz", {"exact": 1.0}, 0.95, 0.2, 0.6, 0.8),
    "de": _stemmed("de", 0.8, 0.95, 1.0, 0.55, 0.55),
    "es": _stemmed("es", 0.8, 0.65, 1.3, 0.5, 0.8),
    "fr": _stemmed("fr", 0.2, 0.9, 1.4, 0.6, 0.65),
    # parameters that are not tuned for a language, and but for Russian no list of function words
    **{
        code: _stemmed(code)
        for code in ("da", "fi", "hu", "it", "nl", "no", "pt", "ro", "ru", "tr")
    },
    **{"nb": _stemmed("no"), "sv": _stemmed("se")},
}
"""By ISO 639-1. Tables of paraphrases are there for English alone."""


class Meteor:
    """METEOR in a language; a process that died or answered nonsense is replaced at the next score.

    The English one loads a table of paraphrases, 1.2 GB in 7 CPU seconds. In the jar's -stdio mode
    the line `SCORE ||| reference ||| .. ||| candidate` is answered with the match statistics of one
    image, from which the scores of any set of images are computed here. The jar ends with its
    standard input, so also if this process is killed.
    """

    def __init__(self, language: str = "en") -> None:
        self._matching = MATCHING[language]
        # in other languages the words are the tokens of the data set, and none is matched by what
        # is missing
        how = ["-norm"] if language == "en" else ["-lower", "-m", " ".join(self._matching.weights)]
        self._arguments = [
            "-Xmx2G",
            "-jar",
            str(JAR),
            "-",
            "-",
            "-stdio",
            "-l",
            self._matching.name,
            *how,
        ]
        self.process: Java | None = None

    def start(self) -> Java:
        """Start the process, unless it has been started."""
        if self.process is None:
            self.process = Java("METEOR", self._arguments)
            self._stop = weakref.finalize(self, self.process.__exit__)
            self._errors: deque[str] = deque(maxlen=STDERR_LINES)
            assert self.process.stderr is not None
            self._reader = threading.Thread(
                target=self._errors.extend, args=(self.process.stderr,), daemon=True
            )
            self._reader.start()
        return self.process

    def match(
        self, references: Sequence[Sequence[str]], candidates: Sequence[str], timeout: float = 60
    ) -> Statistics:
        """The statistics of each caption against that of its references that fits it best."""
        lines = []
        for captions, candidate in zip(references, candidates, strict=True):
            # none can be taken for two fields or two lines
            fields = [
                re.sub("[\n\r]", " ", text).replace("|||", "") for text in (*captions, candidate)
            ]
            lines.append(" ||| ".join(["SCORE", *(field.replace("  ", " ") for field in fields)]))
        try:
            rows = self._rows(lines, allowed(len(lines), timeout))
        except BaseException:  # also Ctrl-C: later answers would be those to earlier lines
            self.process = None
            self._stop()
            raise
        return Statistics(("METEOR",), rows, partial(_meteor, matching=self._matching))

    def _rows(self, lines: Sequence[str], seconds: float) -> Array:
        rows = np.array(
            [answer.split() for answer in self._answers(self.start(), lines, seconds)],
            dtype=np.float64,
        )
        # A caption that matches its reference whole and in order is no fragment: the jar does not
        # add its only chunk.
        matched = rows[:, 4:20].reshape(-1, 8, 2).sum(axis=1)  # [B, 2]
        whole = (matched == rows[:, :2]).all(axis=1) & (rows[:, 20] == 1)
        rows[whole, 20] = 0
        return rows

    def _answers(self, process: Java, lines: Sequence[str], seconds: float) -> list[str]:
        assert process.stdin is not None
        assert process.stdout is not None
        answers: list[str] = []
        deadline = time.monotonic() + seconds
        watch = threading.Timer(seconds, process.kill)
        watch.start()
        try:
            for first in range(0, len(lines), LINES_AT_ONCE):
                some = lines[first : first + LINES_AT_ONCE]
                process.stdin.writelines(f"{line}\n" for line in some)
                process.stdin.flush()
                answers += islice(process.stdout, len(some))
        except BrokenPipeError:
            pass  # as if it had not answered
        finally:
            watch.cancel()
        if len(answers) < len(lines):
            late = time.monotonic() >= deadline
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)  # its own exit status
            process.kill()
            process.wait()
            self._reader.join(1)
            raise process.too_slow(seconds) if late else process.ended("".join(self._errors))
        return answers


def _meteor(sums: Array, matching: Matching) -> Array:
    """METEOR with the jar's default parameters (section 2) from summed statistics: `[K, 23]` to
    `[K, 1]`.

    The numbers, of candidate and reference in turn: 0-1 words, 2-3 function words, 4-19 matched
    content words and matched function words by each of up to four matchers; 20 chunks; 21-22
    matched words again, as the chunks count them.
    """
    _, weights, alpha, beta, gamma, delta = matching
    matchers = np.pad([*weights.values()], (0, 4 - len(weights)))
    words, function_words = sums[:, 0:2], sums[:, 2:4]
    content, function = sums[:, 4:20].reshape(-1, 4, 2, 2).transpose(2, 0, 1, 3)  # [K, 4, 2] each
    matches = matchers @ (delta * content + (1 - delta) * function)  # [K, 2]
    with np.errstate(divide="ignore", invalid="ignore"):  # without a match the score is 0
        precision, recall = (
            matches / (delta * (words - function_words) + (1 - delta) * function_words)
        ).T
        f_mean = 1 / ((1 - alpha) / precision + alpha / recall)
        fragmentation = sums[:, 20] / sums[:, 21:].mean(axis=1)
        score = f_mean * (1 - gamma * fragmentation**beta)
    return np.maximum(np.nan_to_num(score), 0)[:, None]
