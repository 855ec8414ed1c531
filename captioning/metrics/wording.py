"""Statistics of the wording of captions: endings, lengths, diversity, novelty, entropy."""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from statistics import fmean
from typing import NamedTuple

_PEERS = ("a", "an", "the", "in", "for", "at", "of", "with", "before", "after", "on", "upon", "near", "to")
BAD_ENDINGS = frozenset([*_PEERS, "is", "are", "am", "and"])  # "and" is our addition (D)
"""Words that no whole sentence ends with (ruotianluo/self-critical.pytorch, `captioning/models/AttModel.py`)."""
PERCENT = 100.0
UNSEEN = 0.4
"""The share of its word pairs beyond which a caption counts as made of unseen ones (D)."""


class Said(NamedTuple):
    """A caption, words separated by spaces; from a model, with its ending and token entropies in nats."""

    words: str
    finished: bool = True
    entropy: Sequence[float] = ()


def wording(captions: Sequence[str]) -> dict[str, float]:
    """Statistics of captions, words separated by spaces, at least one caption."""
    split = [caption.split() for caption in captions]
    words = [word for caption in split for word in caption]
    pairs = [pair for caption in split for pair in pairwise(caption)]
    bad = sum(caption[-1] in BAD_ENDINGS for caption in split if caption)
    repeated = sum(any(a == b for a, b in pairwise(caption)) for caption in split)  # a word twice in a row
    return {
        "bad_endings": PERCENT * bad / len(split),
        "repeated": PERCENT * repeated / len(split),
        "length": len(words) / len(split),
        # Li et al., "A Diversity-Promoting Objective Function", 2016
        "distinct-1": PERCENT * len(set(words)) / max(1, len(words)),
        "distinct-2": PERCENT * len(set(pairs)) / max(1, len(pairs)),
        "vocabulary used": float(len(set(words))),
    }


class TrainingCaptions:
    """The captions of training, each a sequence of words, to compare generated ones with."""

    def __init__(self, captions: Iterable[Sequence[str]]) -> None:
        self._texts: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        for words in captions:
            self._texts.add(" ".join(words))
            self._pairs.update(pairwise(words))

    def compared(self, captions: Sequence[str]) -> dict[str, float]:
        """Return percentages of novel captions, and of captions with unseen word pairs."""
        novel = sum(caption not in self._texts for caption in captions)
        pairs = [list(pairwise(caption.split())) for caption in captions]
        unseen = sum(sum(pair not in self._pairs for pair in each) > UNSEEN * len(each) for each in pairs)
        return {"novel": PERCENT * novel / len(captions), "unseen pairs": PERCENT * unseen / len(captions)}


def of_model(captions: Sequence[Said], training: TrainingCaptions | None) -> dict[str, float]:
    """All statistics of a model's captions, at least one; the captions of training may be unknown."""
    words = [caption.words for caption in captions]
    return {
        **wording(words),
        **({} if training is None else training.compared(words)),
        # not cut at the longest length
        "ended": PERCENT * sum(caption.finished for caption in captions) / len(captions),
        "first word entropy": fmean(caption.entropy[0] for caption in captions),
        # their ends included
        "word entropy": fmean(chain.from_iterable(caption.entropy for caption in captions)),
    }
