"""Progress: bars on a terminal and in a notebook, elsewhere a line from time to time."""

import io
import multiprocessing
import os
import sys
from typing import Any, TextIO

from tqdm import tqdm

from captioning.machine import is_rank_zero

EVERY = 30
"""Seconds between two lines where there is no terminal."""


def in_notebook() -> bool:
    """Tell whether this process is a notebook's kernel."""
    return "ipykernel" in sys.modules


def has_bars(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal or a notebook's, and no other job of a sweep writes."""
    return (stream.isatty() or in_notebook()) and multiprocessing.parent_process() is None


def progress_bar(text: str, total: int | None, unit: str, **options: Any) -> "tqdm[Any]":
    """A tqdm bar on rank 0, or lines without a terminal; None is an unknown total."""
    settings = {"desc": text, "total": total, "unit": unit, "disable": not is_rank_zero()}
    settings |= options
    if not has_bars(sys.stderr):
        return _Lines(**settings)
    if in_notebook():
        from tqdm.auto import tqdm as notebook_tqdm  # here, because it imports asyncio

        return notebook_tqdm(**settings)
    # 80 columns where the width is unknown, as in some containers
    columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return tqdm(ncols=columns, nrows=24, **settings)


class _Lines(tqdm):
    """Count as tqdm does, in lines without cursor codes: every `EVERY` seconds, and at the end."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options,
            file=io.StringIO(),  # keeps tqdm's carriage returns and empty lines off standard error
            mininterval=EVERY,
            maxinterval=EVERY,
            miniters=1,
            leave=False,
            bar_format="{desc}: {n_fmt}/{total_fmt} {unit}, {rate_fmt}, {elapsed}<{remaining}",
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if msg is None and self.n > self.initial:
            print(self, file=sys.stderr, flush=True)

    def close(self) -> None:
        if not self.disable and self.format_dict["elapsed"] >= self.delay:
            self.display()
        super().close()


def duration(seconds: float) -> str:
    """A rounded time: `45 s`, `12 min`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        large, small, units = *divmod(minutes, 60), ("h", "min")
    else:
        large, small, units = *divmod(round(minutes / 60), 24), ("d", "h")
    rest = f" {small} {units[1]}" if small else ""
    return f"{large} {units[0]}{rest}"
