"""How captions are worded, whatever the photographs show: endings, lengths, and how much of the language is used."""

from collections.abc import Container, Iterable, Sequence
from itertools import pairwise

_PEERS = ("a", "an", "the", "in", "for", "at", "of", "with", "before", "after", "on", "upon", "near", "to")
BAD_ENDINGS = frozenset([*_PEERS, "is", "are", "am", "and"])  # "and" is our addition (D)
"""Words that no whole sentence ends with (ruotianluo/self-critical.pytorch, `captioning/models/AttModel.py`)."""
PERCENT = 100.0
WORDING = ("bad_endings", "length", "distinct-1", "distinct-2", "vocabulary used")
ENDED = "ended"
"""The percentage of captions that were not cut at the longest length; the words alone do not tell it."""

NOVEL = "novel"


def wording(captions: Sequence[str]) -> dict[str, float]:
    """Statistics of captions, words separated by spaces, at least one caption.

    - bad_endings: the percentage whose last word is one of `BAD_ENDINGS`.
    - length: the mean number of words.
    - distinct-1, distinct-2: different words, and pairs of neighbours, in percent of all (Li et al., "A
      Diversity-Promoting Objective Function", 2016).
    - vocabulary used: the number of different words.
    """
    split = [caption.split() for caption in captions]
    words = [word for caption in split for word in caption]
    pairs = [pair for caption in split for pair in pairwise(caption)]
    bad = sum(caption[-1] in BAD_ENDINGS for caption in split if caption)
    values = (
        PERCENT * bad / len(split),
        len(words) / len(split),
        _distinct(words),
        _distinct(pairs),
        float(len(set(words))),
    )
    return dict(zip(WORDING, values, strict=True))


def _distinct(found: Sequence[object]) -> float:
    return PERCENT * len(set(found)) / max(1, len(found))


def novel(captions: Sequence[str], training: Container[str]) -> dict[str, float]:
    """The percentage of captions, at least one, that are none of those in training; the others may be copied whole."""
    return {NOVEL: PERCENT * sum(caption not in training for caption in captions) / len(captions)}


def ended(finished: Iterable[bool]) -> dict[str, float]:
    """The share of captions that ended by themselves, at least one caption."""
    every = list(finished)
    return {ENDED: PERCENT * sum(every) / len(every)}
