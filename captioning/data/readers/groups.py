"""Groups of images, whose scores are also given apart: by a column of the data, or by length."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from captioning.data.example import Example, reference_texts
from captioning.data.readers.options import options
from captioning.data.words import Language
from captioning.errors import CaptioningError, one_line, quoted
from captioning.files import to_json

LENGTH = "length"
"""In place of a column: thirds of the images by the mean length of their references."""
LONGEST, MOST = 60, 100
Group = Annotated[str, Field(pattern=r"^\P{C}*$", max_length=LONGEST)]
"""The group of an image; empty for none."""


def group_of(entry: Mapping[str, Any]) -> str:
    """The group that an entry names; a number, true or false is `COLUMN=VALUE`."""
    column = options().groups
    value = None if column is None else entry.get(column)
    if value is None:
        return ""
    text = value if isinstance(value, str) else f"{column}={to_json(value)}"
    return one_line(text)[:LONGEST]


def add_groups(images: Sequence[Any], entries: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
    """Give images of a JSON file the groups that their entries name, where that is asked for."""
    if options().groups is not None:
        for image, entry in zip(images, entries(), strict=True):
            image.group = group_of(entry)


def with_groups(
    examples: Sequence[Example], column: str | None, language: Language
) -> Sequence[Example]:
    """The examples in the groups of a column that was read, or of their lengths."""
    if column is None:
        return examples
    own = [example.group for example in examples]
    groups = choose_groups(own, reference_texts(examples), column, language)
    return [replace(example, group=group) for example, group in zip(examples, groups, strict=True)]


def choose_groups(
    groups: Sequence[str],
    references: Iterable[Sequence[str]],
    column: str | None,
    language: Language,
) -> Sequence[str]:
    """The groups of images that a column has given, or those by the length of their references.

    Raises:
        CaptioningError: images with references have none, or too many.
    """
    if column is None:
        return groups
    known = list(references)
    if column == LENGTH:
        groups = length_groups([[language.split(text) for text in texts] for texts in known])
    found = {*groups} - {""}
    if any(known) and not 0 < len(found) <= MOST:
        raise CaptioningError(
            f"groups={quoted(column)} gives {len(found):,} groups of images: name {LENGTH}, or a "
            f"column or key with 1 to {MOST} different values"
        )
    return groups


def length_groups(references: Sequence[Sequence[Sequence[str]]]) -> list[str]:
    """The third that each image is in by the mean length of its references, given as words."""
    means = [fmean(map(len, captions)) if captions else None for captions in references]
    known = [mean for mean in means if mean is not None]
    if not known:
        return [""] * len(means)
    ends = np.quantile(known, (1 / 3, 2 / 3, 1), method="inverted_cdf")
    names = [f"third {n} (up to {end:.1f} words)" for n, end in enumerate(ends, start=1)]
    return ["" if mean is None else names[np.searchsorted(ends, mean)] for mean in means]
