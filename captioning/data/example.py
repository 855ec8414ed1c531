"""Captioned photographs, as every reader returns them."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
Box = tuple[float, float, float, float]
"""Left, top, right, bottom as fractions of the photograph's width and height, so that resizing
keeps them.
"""


@dataclass(frozen=True, slots=True)
class Noun:
    """A word of a caption and the box of the object that it names; `word` counts from 0."""

    word: int
    box: Box


@dataclass(frozen=True, slots=True)
class Reference:
    """One human caption, as written (for the scorers) and as words (for the model)."""

    text: str
    words: tuple[str, ...]
    nouns: tuple[Noun, ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """One photograph and its references."""

    image_id: int | str
    path: Path
    references: tuple[Reference, ...]
    wordless: int = field(
        default=0, compare=False
    )  # captions that were left out, as they have no word
    source: tuple[str, ...] = ()  # words of a sentence to translate, in place of a photograph


Splits = Mapping[str, Sequence[Example]]
"""`train`, `val` and `test`, each a sequence of examples."""


def reference_texts(examples: Sequence[Example]) -> list[list[str]]:
    """All references of each example as written, including long ones, for the scorers."""
    return [[reference.text for reference in example.references] for example in examples]


def photographs(examples: Sequence[Example], root: str | Path | None) -> list[str]:
    """The path of each photograph as text, relative to the folder `root` if it is inside; empty for
    a sentence.
    """
    folder = None if root is None else Path(root).expanduser().absolute()
    paths = (example.path.absolute() for example in examples)
    names = (
        path.relative_to(folder) if folder and path.is_relative_to(folder) else path
        for path in paths
    )
    texts = (
        os.fsencode(name).decode(errors="backslashreplace") for name in names
    )  # a path may be invalid text
    return ["" if example.source else text for example, text in zip(examples, texts, strict=True)]


def digest(splits: Splits) -> str:
    """SHA-256 over ids, file names, captions and sources of all splits; equal digests mean equal
    data.
    """
    sha = hashlib.sha256()
    for name, examples in sorted(splits.items()):
        for e in examples:
            content = (name, e.image_id, e.path.name, [(r.text, r.words) for r in e.references])
            sha.update(repr((*content, e.source) if e.source else content).encode())
    return sha.hexdigest()
