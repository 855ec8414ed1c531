"""What the numbers of a test are counted in, and how they are printed."""

from dataclasses import dataclass

NO_PENALTY = " (no brevity penalty)"


@dataclass(frozen=True, slots=True)
class Unit:
    """Of a number.

    Attributes:
        name: short enough for the head of a column.
        digits: behind the point.
    """

    name: str
    digits: int = 1


SCORE, CIDER, PERCENT, WORDS = Unit("0-100"), Unit("x 100"), Unit("%"), Unit("words")
PAPERS = SCORE, CIDER
"""Of scores as papers print them."""
ATTENTION_UNITS = {
    **dict.fromkeys(("pointing", "pointing (images shuffled)", "attention coverage"), PERCENT),
    "attention entropy": Unit("nats", 2),
    "attention entropy variance": Unit("nats^2", 2),
    "attention movement": Unit("0-1", 2),
}
"""Of scores that maps of attention have, captions alone do not."""
UNITS = {
    **dict.fromkeys(("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "SPICE"), SCORE),
    "CIDEr": CIDER,  # of at most 10
    **ATTENTION_UNITS,
    **dict.fromkeys(("bad_endings", "repeated", "distinct-1", "distinct-2"), PERCENT),
    **dict.fromkeys(("novel", "unseen pairs", "ended"), PERCENT),
    **dict.fromkeys(("first word entropy", "word entropy"), Unit("nats", 2)),
    **dict.fromkeys(("length", "vocabulary used"), WORDS),
}
OTHER = Unit("")
"""Of what a user's own parts have logged."""


def unit(name: str) -> Unit:
    """By the name in `scores.json`."""
    return UNITS.get(name.removesuffix(NO_PENALTY), OTHER)


def printed(name: str, value: float) -> str:
    """A number without its unit; what is rounded to zero has no sign."""
    return f"{value:z.{unit(name).digits}f}"


def headed(name: str) -> str:
    """The head of a column: with the unit, where that is not the 0-100 of papers."""
    found = unit(name)
    return name if found in (SCORE, OTHER) else f"{name} ({found.name})"
