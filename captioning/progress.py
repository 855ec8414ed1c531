"""Progress on standard error: a bar on a terminal, elsewhere a line from time to time."""

import io
import multiprocessing
import os
import sys
from typing import Any

from tqdm import tqdm

from captioning.machine import is_rank_zero

EVERY = 30
"""Seconds between two lines where there is no terminal."""


def on_terminal() -> bool:
    """Tell whether standard error is a terminal that no other job of a sweep writes to."""
    return sys.stderr.isatty() and multiprocessing.parent_process() is None


def progress_bar(text: str, total: int | None, unit: str, **options: Any) -> "tqdm[Any]":
    """A tqdm bar on rank 0, or lines without a terminal; None is an unknown total."""
    settings = {
        "desc": text,
        "total": total,
        "unit": unit,
        "disable": not is_rank_zero(),
        **options,
    }
    if not on_terminal():
        return _Lines(**settings)
    # 80 columns where the width is unknown, as in some containers
    columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return tqdm(ncols=columns, nrows=24, **settings)


class _Lines(tqdm):
    """Count as tqdm does, in lines without cursor codes: every `EVERY` seconds, and at the end."""

    def __init__(self, **options: Any) -> None:
        # its own file keeps tqdm's carriage returns and empty lines off standard error
        super().__init__(
            **options,
            file=io.StringIO(),
            mininterval=EVERY,
            maxinterval=EVERY,
            miniters=1,
            leave=False,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if msg is None and self.n > self.initial:
            self._print()

    def close(self) -> None:
        elapsed = self.format_dict["elapsed"]
        if not self.disable and self.n > self.initial and elapsed >= self.delay:
            self._print(
                f"{self._count(self.n)} in {duration(elapsed)}" if self.n == self.total else None
            )
        super().close()

    def _print(self, text: str | None = None) -> None:
        rate = (self.n - self.initial) / max(self.format_dict["elapsed"], 1e-9)
        if text is None and self.total:
            left = duration((self.total - self.n) / rate)
            counted = f"{self._number(self.n)} of {self._count(self.total)}"
            text = f"{counted}, {self._number(rate)}/s, {left} left"
        text = text or f"{self._count(self.n)}, {self._number(rate)}/s"
        print(f"{self.desc}: {text}", file=sys.stderr, flush=True)

    def _count(self, number: float) -> str:
        return self._number(number) + (self.unit if self.unit_scale else f" {self.unit}s")

    def _number(self, number: float) -> str:
        if self.unit_scale:
            return str(tqdm.format_sizeof(number))
        return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def duration(seconds: float) -> str:
    """A rounded time: `45 s`, `12 min`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    small, units = (
        (minutes, ("h", "min")) if minutes < 24 * 60 else (round(minutes / 60), ("d", "h"))
    )
    pairs = zip(divmod(small, 60 if units[0] == "h" else 24), units, strict=True)
    return " ".join(f"{number} {unit}" for number, unit in pairs if number)
