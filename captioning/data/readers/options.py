"""What a command asks of the readers, which take no arguments for it: a reader is called bare.

with reading(needed=("train",), groups="place"):
splits = reader()
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from captioning.data.example import SPLITS
from captioning.data.words import ENGLISH_WORDS, Language


@dataclass(frozen=True)
class ReadOptions:
    """How entries are read, also by the checks of a reader's arguments."""

    skipped: list[Exception] | None = None  # errors of entries left out; None: each is raised
    needed: Collection[str] = SPLITS  # splits that may not be empty
    groups: str | None = None  # the column or key that gives the groups of images, if any
    language: Language = ENGLISH_WORDS  # of the words of captions that are read into columns
    cache: Path | None = None  # the folder of what is kept; None: nothing is


_DEFAULTS = ReadOptions()
_OPTIONS = ContextVar("options", default=_DEFAULTS)


def options() -> ReadOptions:
    """The options of the block that reads, see `reading`."""
    return _OPTIONS.get()


@contextmanager
def reading(**changes: Any) -> Iterator[None]:
    """Change some of the `ReadOptions` in a block."""
    outer = _OPTIONS.set(replace(options(), **changes))
    try:
        yield
    finally:
        _OPTIONS.reset(outer)
