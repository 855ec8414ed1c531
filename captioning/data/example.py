"""Captioned photographs, as every reader returns them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from captioning.config.types import given_path
from captioning.files import JOIN

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
    """One photograph, or several that are described together, and its references."""

    image_id: int | str
    path: Path
    references: tuple[Reference, ...]
    # captions that were left out, as they have no word
    wordless: int = field(default=0, compare=False)
    source: tuple[str, ...] = ()  # words of a sentence to translate, in place of a photograph
    further: tuple[Path, ...] = ()  # images after the first, such as another view
    group: str = ""  # of images whose scores are also given apart

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its images in order."""
        return self.path, *self.further


Splits = Mapping[str, Sequence[Example]]
"""`train`, `val` and `test`, each a sequence of examples."""


def reference_words(examples: Iterable[Example]) -> Iterable[tuple[str, ...]]:
    """The words of every reference, example by example; `CaptionWords` of columns."""
    if of_columns := getattr(examples, "reference_words", None):
        return of_columns()
    return (reference.words for example in examples for reference in example.references)


def reference_counts(examples: Iterable[Example]) -> np.ndarray:
    """The number of references of each example."""
    if of_columns := getattr(examples, "reference_counts", None):
        return of_columns()
    return np.fromiter((len(example.references) for example in examples), np.int64)


def reference_texts(examples: Sequence[Example]) -> list[list[str]]:
    """All references of each example as written, including long ones, for the scorers."""
    return [[reference.text for reference in example.references] for example in examples]


def image_names(examples: Sequence[Example], root: str | Path | None) -> list[str]:
    """The path of each photograph as text; empty for a sentence.

    It is relative to the folder `root` if it is inside. Those of several images are joined by
    `JOIN`.
    """
    folder = None if root is None else given_path(root).absolute()

    def text(path: Path) -> str:
        path = path.absolute()
        name = path.relative_to(folder) if folder and path.is_relative_to(folder) else path
        return os.fsencode(name).decode(errors="backslashreplace")  # a path may be invalid text

    return ["" if e.source else JOIN.join(map(text, e.paths)) for e in examples]


def single_images(examples: Iterable[Example]) -> list[Example]:
    """An example for each of their images."""
    return [replace(e, path=path, further=()) for e in examples for path in e.paths]
