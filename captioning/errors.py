"""What a command ends with that is no defect of the program, and how it is said."""

from collections.abc import Sequence
from difflib import get_close_matches


class CaptioningError(Exception):
    """What a user can mend: says what came, what is allowed and what to do; commands print it alone and exit with 1."""


class Stopped(BaseException):
    """A signal has ended the work; says how to go on. No `Exception`, or a sweep would go on to its next job.

    Attributes:
        exit_code: 128 and the number of the signal, as shells have it.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message, signal_number)
        self.exit_code = 128 + signal_number

    def __str__(self) -> str:
        return str(self.args[0])


def did_you_mean(name: str, allowed: list[str]) -> str:
    """A hint at the closest of `allowed`, with a space before it, or nothing where none is close."""
    close = get_close_matches(name, allowed, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def no_setting(path: str, name: str, allowed: list[str], elsewhere: Sequence[str] = ()) -> str:
    """The message for a setting `name` that is not below `path`, where `allowed` are; `elsewhere` are its namesakes."""
    where = f"in {path}" if path else "at the top level"
    full = f"{path}.{name}" if path else name
    hint = f" Did you mean {' or '.join(elsewhere)}?" if elsewhere else did_you_mean(name, allowed)
    return f"there is no setting {full}.{hint} Settings {where}: {', '.join(sorted(allowed))}"


SECRETS: set[str] = set()
"""Tokens of the user that are sent to servers: what they answer may have them, what is said of it may not."""
QUOTED = 200
"""Characters of what came that a message shows."""


def quoted(value: object) -> str:
    """What came, as YAML would have it, on one line of at most `QUOTED` characters; of an error what it says."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = str(value) or (type(value).__name__ if isinstance(value, Exception) else "")
    except ValueError:  # Python prints no number of more than some thousand digits
        text = "a number of too many digits"
    for secret in SECRETS:
        text = text.replace(secret, "***")
    if len(text) > QUOTED:  # the end of a path tells more than its middle
        text = f"{text[: QUOTED // 2 - 3]} ... {text[2 - QUOTED // 2 :]}"
    return one_line(text)


def one_line(text: str) -> str:
    """A text without what could move the cursor of a terminal, or end the line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
