"""Parser of captions of scenes: named things and their places.

It is the inverse of `captioning.data.shapes.phrasing`. Words become marks, and the marks of a
caption are searched for the clauses of `_CLAUSES`, so that a caption that breaks off or stumbles is
read as far as it goes. Articles, "there", "one" and "from" are skipped.

    N    a thing            "small red circle", also without its colour or its shape
    R    a relation         "left of", "below"
    K    a relation to it   "on its left", "below it"
    O    an order           "left to right"
    P    a place            "at the top left"
    I, W, B, T, &           "is" or "are", "with", "between", "then", "and"
    x    any other word
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from captioning.data.shapes.phrasing import PLACES, RELATIONS
from captioning.data.shapes.scene import COLOURS, SHAPES, SIZES

OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
Triple = tuple[int, str, int]
"""A thing, where it is, and seen from which thing: their places in the caption."""
Statement = Sequence[Sequence[Triple]]
"""Alternatives, each of triples that hold together: "between" does not tell which end is which."""
Marks = Sequence[tuple[str, str]]
"""Letters of marks, each with what it stands for."""

_MARKS = {
    phrase: (symbol, direction)
    for symbol, sign in (("R", ":"), ("K", "@"), ("O", ">"))
    for direction, phrase in RELATIONS[sign].items()
}
_MARKS |= {phrase: ("P", phrase) for row in PLACES for phrase in row}
_WORDS = {"is": "I", "are": "I", "with": "W", "between": "B", "then": "T", "and": "&"}
_MARKS |= {word: (symbol, word) for word, symbol in _WORDS.items()}


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))  # "above it" before "above"


_PARTS = re.compile(
    rf"(?:(?:(?P<size>{_any(SIZES)}) )?(?:(?P<colour>{_any(COLOURS)}) (?P<shape>{_any(SHAPES)})"
    rf"|(?P<alone>{_any((*COLOURS, *SHAPES))}))|(?P<mark>{_any(_MARKS)})"
    r"|(?:an?|the|there|one|from)|(?P<other>\S+))"
    "(?: |$)"
)
_GROUP = "(?:N&N(?!I?[RKB])|N)"  # in "A left of B and C above D", C begins a clause of its own
_CLAUSES = tuple(
    map(
        re.compile,
        (
            "NI?BN&N|BN&NIN",  # B between A and C
            "NTN(?:TN)*O",  # A then B then C from left to right
            "NWNK(?:&NK)*",  # A with B on its left and C above it
            "RN(?:&RN)*IN",  # left of B and above C is A
            f"(?:N&N|N)I?R{_GROUP}(?:&R{_GROUP})*",  # A and B are above C and D
            "NI?P|PI?N",  # A at the top left
        ),
    )
)


@dataclass(frozen=True)
class Named:
    """A thing as a caption names it, with an empty string for what it leaves out."""

    size: str
    colour: str
    shape: str

    @property
    def text(self) -> str:
        """Colour and shape, by which the things of a scene differ."""
        return f"{self.colour} {self.shape}".strip()

    @property
    def is_whole(self) -> bool:
        """Whether the caption names both its colour and its shape."""
        return self.colour != "" and self.shape != ""


@dataclass(frozen=True)
class CaptionContent:
    """The content of a caption."""

    things: Sequence[Named]
    statements: Sequence[Statement]  # about two or more things
    # A thing, and a phrase for its place in the picture such as "at the top left".
    locations: Sequence[tuple[int, str]]
    strange: bool  # has words outside of the lexicon


def parse(caption: str) -> CaptionContent:
    """Read a caption."""
    marks: list[tuple[str, str]] = []
    things: list[Named] = []
    for part in _PARTS.finditer(" ".join(re.findall(r"\w+", caption.lower()))):
        size, colour, shape, alone, mark, other = part.groups("")
        if colour or alone:
            marks.append(("N", str(len(things))))
            if alone in SHAPES:
                shape = alone
            else:
                colour = colour or alone
            things.append(Named(size, colour, shape))
        elif mark or other:
            marks.append(_MARKS.get(mark, ("x", other)))
    statements: list[Statement] = []
    locations: list[tuple[int, str]] = []
    for clause in _clauses(marks):
        phrases = [phrase for symbol, phrase in clause if symbol == "P"]
        if phrases:
            locations += [(int(value), phrases[0]) for symbol, value in clause if symbol == "N"]
        else:
            statements += _statements(clause)
    return CaptionContent(things, statements, locations, any(symbol == "x" for symbol, _ in marks))


def _clauses(marks: Marks) -> Iterator[Marks]:
    """Split marks into clauses, and leave out the rest."""
    symbols, start = "".join(symbol for symbol, _ in marks), 0
    while start < len(symbols):
        matches = (clause.match(symbols, start) for clause in _CLAUSES)
        if match := next(filter(None, matches), None):
            yield marks[start : match.end()]
        start = match.end() if match else start + 1


def _statements(clause: Marks) -> Iterator[Statement]:
    """Read a clause about two or more things."""
    nouns = [int(value) for symbol, value in clause if symbol == "N"]
    if clause[-1][0] == "O":
        yield [[(a, clause[-1][1], b) for a, b in combinations(nouns, 2)]]
    elif any(symbol == "B" for symbol, _ in clause):
        one, other, it = nouns if clause[0][0] == "B" else (*nouns[1:], nouns[0])
        yield [[(one, direction, it), (it, direction, other)] for direction in OPPOSITE]
    subjects: list[int] = []
    related: list[tuple[str, list[int]]] = []
    members = subjects
    for symbol, value in clause:
        if symbol == "N":
            members.append(int(value))
        elif symbol == "R":
            members = []
            related.append((value, members))
        elif symbol == "I":
            members = subjects
        elif symbol == "K":
            yield [[(subjects[-1], value, subjects[0])]]
    for direction, members in related:
        # In two pairs each member has its own partner, as they are arranged.
        arranged = zip if len(subjects) == len(members) else product
        yield [[(a, direction, b) for a, b in arranged(subjects, members)]]
