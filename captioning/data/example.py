"""Captioned photographs, as every reader returns them."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Box = tuple[float, float, float, float]
"""Left, top, right, bottom as fractions of the photograph's width and height, so that resizing keeps them."""


@dataclass(frozen=True, slots=True)
class Noun:
    """The box of an object that a word of a caption names; `word` counts from 0."""

    word: int
    box: Box


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


def reference_texts(examples: Sequence[Example]) -> list[list[str]]:
    """The references of each example as written, for the scorers: all of them, long ones too."""
    return [[reference.text for reference in example.references] for example in examples]


def photographs(examples: Sequence[Example], root: str | Path | None) -> list[str]:
    """The path of each photograph as text, relative to the folder `root` where it lies in it."""
    folder = None if root is None else Path(root).expanduser().absolute()
    paths = (example.path.absolute() for example in examples)
    names = (path.relative_to(folder) if folder and path.is_relative_to(folder) else path for path in paths)
    return [os.fsencode(name).decode(errors="backslashreplace") for name in names]  # not every path is text


def digest(splits: Splits) -> str:
    """SHA-256 over ids, file names and captions of every split: equal digests, the same task."""
    sha = hashlib.sha256()
    for name, examples in sorted(splits.items()):
        for e in examples:
            sha.update(repr((name, e.image_id, e.path.name, [(r.text, r.words) for r in e.references])).encode())
    return sha.hexdigest()
