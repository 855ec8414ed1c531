"""What is counted while a person waits: a bar on a terminal, elsewhere a line from time to time. On standard error."""

import io
import multiprocessing
import os
import sys
from typing import Any

from tqdm import tqdm

from captioning.machine import is_first

EVERY = 30
"""Seconds between two lines where there is no terminal."""


def on_terminal() -> bool:
    """Whether bars can be drawn: standard error is a terminal, and not shared with other jobs of a sweep."""
    return sys.stderr.isatty() and multiprocessing.parent_process() is None


def bar(**options: Any) -> "tqdm[Any]":
    """A bar of tqdm's, as wide as the terminal; where that does not know its width, as in some containers, 80."""
    return tqdm(**{"ncols": _columns(), "nrows": 24, **options})


def _columns() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns or 80


def counter(text: str, total: int | None, unit: str, **options: Any) -> "tqdm[Any]":
    """A bar of tqdm's that only rank 0 shows; without a terminal the same as lines.

    Args:
        text: what is being done.
        total: how many there are; None: unknown.
        unit: of what.
        options: of tqdm.
    """
    kind = bar if on_terminal() else _Lines
    return kind(**{"desc": text, "total": total, "unit": unit, "disable": not is_first(), **options})


class _Lines(tqdm):
    """Counts as tqdm does, and says so in lines without cursor codes: every `EVERY` seconds, and at the end."""

    def __init__(self, **options: Any) -> None:
        # A file of its own keeps off standard error what tqdm writes of itself: carriage returns and empty lines.
        super().__init__(**options, file=io.StringIO(), mininterval=EVERY, maxinterval=EVERY, miniters=1, leave=False)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Says where it is; what tqdm would have cleared is no news."""
        if msg is None and self.n > self.initial:
            self._say(self._state())

    def close(self) -> None:
        """Says how many there were."""
        if not self.disable and self.n > self.initial and self.format_dict["elapsed"] >= self.delay:
            took = f" in {duration(self.format_dict['elapsed'])}"
            self._say(f"{self._count(self.n)}{took}" if self.n == self.total else self._state())
        super().close()

    def _say(self, text: str) -> None:
        print(f"{self.desc}: {text}", file=sys.stderr, flush=True)

    def _state(self) -> str:
        rate = (self.n - self.initial) / max(self.format_dict["elapsed"], 1e-9)
        if not self.total:
            return f"{self._count(self.n)}, {self._number(rate)}/s"
        left = duration((self.total - self.n) / rate)
        return f"{self._number(self.n)} of {self._count(self.total)}, {self._number(rate)}/s, {left} left"

    def _count(self, number: float) -> str:
        return f"{self._number(number)}{self.unit}" if self.unit_scale else f"{self._number(number)} {self.unit}s"

    def _number(self, number: float) -> str:
        if self.unit_scale:
            return str(tqdm.format_sizeof(number))
        return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def duration(seconds: float) -> str:
    """A time as people say it: `45 s`, `12 min`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return _two(*divmod(minutes, 60), "h", "min")
    return _two(*divmod(round(minutes / 60), 24), "d", "h")


def _two(large: int, small: int, unit: str, smaller: str) -> str:
    return f"{large} {unit}" + (f" {small} {smaller}" if small else "")
