"""Errors of single entries: named by their place, and left out and listed where that is asked
for.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from captioning.config.types import format_errors
from captioning.errors import CaptioningError

SKIPPED: ContextVar[list[Exception] | None] = ContextVar("skipped", default=None)
"""Errors of entries that were left out; None where each is raised."""


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
def at(place: object) -> Iterator[None]:
    """Name a file, or a place in it, in errors about its content, also in those of entries that are
    left out.
    """
    skipped = SKIPPED.get()
    before = len(skipped or ())
    try:
        yield
        for error in (skipped or ())[before:]:
            if not any(str(place) in note for note in getattr(error, "__notes__", ())):
                error.add_note(str(place))
    except (CaptioningError, ValidationError, UnicodeDecodeError) as error:
        error.add_note(str(place))
        raise


def without_faulty(adapter: TypeAdapter[Any], text: str | bytes, error: ValidationError) -> bytes:
    """The JSON without the entries that do not fit of the list with the first error; theirs are
    listed.
    """
    place = error.errors(include_url=False)[0]["loc"]
    depth = next((number for number, key in enumerate(place[:2]) if isinstance(key, int)), None)
    if depth is None:  # the file has another layout
        raise error
    content = from_json(text)
    emptied = (
        {key: [] if isinstance(value, list) else value for key, value in content.items()}
        if depth
        else {}
    )

    def around(entries: list[Any], rest: Mapping[Any, Any]) -> bytes:
        return to_json({**rest, place[0]: entries} if depth else entries)

    entries, good = content[place[0]] if depth else content, []
    for position, entry in enumerate(entries):
        with or_skip():
            try:
                adapter.validate_json(around([entry], emptied), strict=True)
            except ValidationError as wrong:
                faults = wrong.errors(include_url=False)
                named = [
                    {**each, "loc": (*place[:depth], position, *each["loc"][depth + 1 :])}
                    for each in faults
                ]
                raise CaptioningError(format_errors("", named)) from wrong
            good.append(entry)
    if not good and len(entries) > 1:
        raise error
    return around(good, content if depth else {})
