"""What a reader makes of one captioned photograph: the first border of the framework."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Noun:
    """Where the object that a word names lies in the photograph.

    Attributes:
        word: position of the word in its reference, counted from 0.
        box: left, top, right, bottom as fractions of the photograph's width and height, so that resizing keeps them.
    """

    word: int
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Reference:
    """One human caption: as written, for the scorers, and as words, for the model."""

    text: str
    words: tuple[str, ...]
    nouns: tuple[Noun, ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """One photograph and its references."""

    image_id: int | str
    path: Path
    references: tuple[Reference, ...]


Splits = Mapping[str, Sequence[Example]]
"""`train`, `val` and `test`, each a sequence of examples."""
