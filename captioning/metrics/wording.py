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
    """A caption, words separated by spaces; of a model also whether it ended, and each token's entropy."""

    words: str
    finished: bool = True
    entropy: Sequence[float] = ()


def wording(captions: Sequence[str]) -> dict[str, float]:
    """Statistics of captions, words separated by spaces, at least one caption.

    - bad_endings: the percentage whose last word is one of `BAD_ENDINGS`.
    - repeated: the percentage with a word twice in a row.
    - length: the mean number of words.
    - distinct-1, distinct-2: different words, and pairs of neighbours, in percent of all (Li et al., "A
      Diversity-Promoting Objective Function", 2016).
    - vocabulary used: the number of different words.
    """
    split = [caption.split() for caption in captions]
    words = [word for caption in split for word in caption]
    pairs = [pair for caption in split for pair in pairwise(caption)]
    bad = sum(caption[-1] in BAD_ENDINGS for caption in split if caption)
    return {
        "bad_endings": PERCENT * bad / len(split),
        "repeated": PERCENT * sum(any(a == b for a, b in pairwise(caption)) for caption in split) / len(split),
        "length": len(words) / len(split),
        "distinct-1": _distinct(words),
        "distinct-2": _distinct(pairs),
        "vocabulary used": float(len(set(words))),
    }


def _distinct(found: Sequence[object]) -> float:
    return PERCENT * len(set(found)) / max(1, len(found))


class TrainingCaptions:
    """The captions of training, each a sequence of words, to compare generated ones with."""

    def __init__(self, captions: Iterable[Sequence[str]]) -> None:
        self._texts: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        for words in captions:
            self._texts.add(" ".join(words))
            self._pairs.update(pairwise(words))

    def compared(self, captions: Sequence[str]) -> dict[str, float]:
        """Statistics of generated captions, words separated by spaces, at least one caption.

        - novel: the percentage that are none of those in training; the others may be copied whole.
        - unseen pairs: the percentage of which more than `UNSEEN` of the pairs of neighbouring words are in no caption
          of training.
        """
        novel = sum(caption not in self._texts for caption in captions)
        unseen = sum(map(self._unseen, captions))
        return {"novel": PERCENT * novel / len(captions), "unseen pairs": PERCENT * unseen / len(captions)}

    def _unseen(self, caption: str) -> bool:
        pairs = list(pairwise(caption.split()))
        return sum(pair not in self._pairs for pair in pairs) > UNSEEN * len(pairs)


def entropy(captions: Sequence[Sequence[float]]) -> dict[str, float]:
    """Means of the entropies in nats with which the tokens of captions were chosen, at least one of each.

    - first word entropy: over captions, of the distribution of the first word.
    - word entropy: over all words of all captions, their ends included.
    """
    first = fmean(each[0] for each in captions)
    return {"first word entropy": first, "word entropy": fmean(chain.from_iterable(captions))}


def ended(finished: Iterable[bool]) -> dict[str, float]:
    """The percentage of captions that were not cut at the longest length, at least one caption."""
    every = list(finished)
    return {"ended": PERCENT * sum(every) / len(every)}


def of_model(captions: Sequence[Said], training: TrainingCaptions | None) -> dict[str, float]:
    """All these statistics of a model's captions, at least one; without `training` those that need none."""
    words = [caption.words for caption in captions]
    found = wording(words) | ({} if training is None else training.compared(words))
    return found | ended(caption.finished for caption in captions) | entropy([each.entropy for each in captions])
