"""Errors of single entries: named by their place, and left out where that is asked for."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pydantic import ValidationError

from captioning.data.example import SPLITS
from captioning.errors import CaptioningError

SKIPPED: ContextVar[list[Exception] | None] = ContextVar("skipped", default=None)
"""Errors of entries that were left out; None where each is raised."""

NEEDED: ContextVar[Collection[str]] = ContextVar("needed", default=SPLITS)
"""Splits that may not be empty."""


@contextmanager
def or_skip() -> Iterator[None]:
    """Leave out a wrong entry, and list its error, where `read` was given a list for it."""
    try:
        yield
    except (CaptioningError, ValidationError) as error:
        skipped = SKIPPED.get()
        if skipped is None:
            raise
        skipped.append(error)


@contextmanager
def at(location: object) -> Iterator[None]:
    """Name a file, or a place in it, in errors about its content.

    Also in those of entries that are left out.
    """
    skipped = SKIPPED.get()
    before = len(skipped or ())
    try:
        yield
    except (CaptioningError, ValidationError, UnicodeDecodeError) as error:
        error.add_note(str(location))
        raise
    for entry in (skipped or ())[before:]:
        if not any(str(location) in note for note in getattr(entry, "__notes__", ())):
            entry.add_note(str(location))
