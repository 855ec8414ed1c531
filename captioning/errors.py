"""Errors that are the user's to solve, and the wording of messages."""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib.resources import files


class CaptioningError(Exception):
    """A problem that the user can solve; commands print the message alone and exit with 1."""


class Stopped(BaseException):
    """A signal has ended the work; not an `Exception`, so that a sweep stops too."""

    def __init__(self, message: str, signal_number: int):
        super().__init__(message, signal_number)
        self.exit_code = 128 + signal_number  # as shells have it

    def __str__(self) -> str:
        return str(self.args[0])


@cache
def _words() -> dict[str, list[str]]:
    text = (files(__package__) / "words.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {word: row["ours"].split(" or ") for row in rows for word in row["theirs"].split(", ")}


def ours_for(word: str) -> list[str]:
    """What is written here for a word of other programs, by `words.csv`; empty if it is unknown."""
    return _words().get(word, [])


def did_you_mean(name: str, allowed: Sequence[str], meant: Sequence[str] = ()) -> str:
    """Return a hint at `meant`, or else at the closest of `allowed`, after a space; or nothing."""
    folded = {word.casefold(): word for word in allowed}
    meant = meant or [folded[close] for close in get_close_matches(name.casefold(), folded, n=1)]
    return f" Did you mean {' or '.join(meant)}?" if meant else ""


def no_setting(path: str, name: str, allowed: Sequence[str], elsewhere: Sequence[str] = ()) -> str:
    """The message for an unknown setting `name` below `path`; `elsewhere` are its namesakes."""
    where = f"in {path}" if path else "at the top level"
    full = f"{path}.{name}" if path else name
    # other commands have other settings, and other models
    known = [
        ours
        for ours in ours_for(full)
        if (path and not ours.startswith(f"{path}."))
        or re.split(r"\W", ours.removeprefix(f"{path}."))[0] in allowed
    ]
    hint = did_you_mean(name, allowed, known or elsewhere)
    return f"there is no setting {full}.{hint} Settings {where}: {', '.join(sorted(allowed))}"


SECRETS: set[str] = set()
"""Tokens that are sent to servers, and that messages must not show."""
QUOTED = 200
"""Characters of a value that a message shows."""


def quoted(value: object) -> str:
    """Format a value as YAML, or an error as its message, in at most `QUOTED` characters."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    try:
        text = str(value) or (type(value).__name__ if isinstance(value, Exception) else "")
    except ValueError:  # Python prints no number of more than some thousand digits
        text = "a number of too many digits"
    for secret in SECRETS:
        text = text.replace(secret, "***")
    if len(text) > QUOTED:  # the end of a path tells more than its middle
        text = f"{text[: QUOTED // 2 - 3]} ... {text[2 - QUOTED // 2 :]}"
    return one_line(text)


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Raise a `CaptioningError` that begins with `what` in place of any exception of a library.

    The panic of a compiled one is no `Exception`, only a `BaseException`.
    """
    try:
        yield
    except (KeyboardInterrupt, Stopped):
        raise
    except BaseException as error:
        reason = error if isinstance(error, CaptioningError) else quoted(error)
        raise CaptioningError(f"{what}: {reason}") from error


FITTING_PAIR = "--force-reinstall torch torchvision, with the --index-url that torch came from"


def misfit(error: BaseException | None) -> bool:
    """Whether torchvision was built for another torch: whatever imports it fails then."""
    while error is not None and not str(error).startswith("operator torchvision::"):
        error = error.__cause__
    return error is not None


def listed(names: Sequence[str], most: int = 3) -> str:
    """Join the first names by commas; an ellipsis stands for further ones."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def one_line(text: str) -> str:
    """A text without line breaks and control characters of terminals."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
