"""Statistics of the wording of captions: endings, lengths, diversity, novelty, entropy, and words
of one system alone.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, pairwise
from statistics import fmean

import numpy as np

from captioning.data.caption_words import CaptionWords
from captioning.data.words import ENGLISH
from captioning.metrics.contrasts import IMAGES_ONLY, LEVEL, Difference, corrected
from captioning.metrics.statistics import PERCENT
from captioning.tokens import BAD_ENDINGS

COMMON, USUAL, FEW = 1 / 3, 2, 2
"""A captioner has collapsed (D) if a caption is that of more than this share of the images, more
than so many times as common as among the references, and that of more than so few images.
"""
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no power of it is 0
UNSEEN = 0.4
"""The share of its word pairs beyond which a caption counts as made of unseen ones (D)."""


def wording(captions: Sequence[Sequence[str]], language: str = ENGLISH) -> dict[str, float]:
    """Statistics of captions, each a sequence of words; at least one caption.

    Endings are of English alone.
    """
    words = list(chain.from_iterable(captions))
    pairs = list(chain.from_iterable(map(pairwise, captions)))
    bad = sum(caption[-1] in BAD_ENDINGS[ENGLISH] for caption in captions if caption)
    # a word twice in a row
    repeated = sum(any(a == b for a, b in pairwise(caption)) for caption in captions)
    values = {}
    if language == ENGLISH:
        values["bad_endings"] = PERCENT * bad / len(captions)
    return values | {
        "repeated": PERCENT * repeated / len(captions),
        "length": len(words) / len(captions),
        # Li et al., "A Diversity-Promoting Objective Function", 2016
        "distinct-1": PERCENT * len(set(words)) / max(1, len(words)),
        "distinct-2": PERCENT * len(set(pairs)) / max(1, len(pairs)),
        "vocabulary used": float(len(set(words))),
        "different captions": float(len({*map(tuple, captions)})),
    }


def commonest_caption(captions: Sequence[str], references: Iterable[Sequence[str]]) -> str | None:
    """A warning where one caption is that of far too many images, `COMMON` says how many.

    Case and punctuation do not count. A data set that repeats itself, such as one of drawn scenes,
    has such captions among its `references`.
    """
    if not captions:
        return None
    text, count = Counter(map(_plain, captions)).most_common(1)[0]
    share = count / len(captions)
    if count <= FEW or share <= COMMON:
        return None  # as nearly always, without a look at the references
    known = [*map(_plain, chain.from_iterable(references))]
    if share <= USUAL * known.count(text) / max(1, len(known)):
        return None
    return f"{count:,} of {len(captions):,} captions are the same: {text or '(no words)'}"


def _plain(caption: str) -> str:
    return " ".join(re.findall(r"\w+", caption.casefold()))


class TrainingCaptions:
    """The captions of training, each a sequence of words, to compare generated ones with."""

    def __init__(self, captions: Iterable[Sequence[str]]):
        self._training = CaptionWords.of(captions)

    def compared(self, captions: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return percentages of novel captions, and of captions with unseen word pairs."""
        own = CaptionWords.of(captions, self._training.lexicon)
        keys, caption = caption_keys(own)
        is_known = np.zeros(len(keys), bool)
        for part in self._training.parts():
            is_known |= is_among(keys, caption_keys(part)[0])
        is_new, is_unseen = np.split(~is_known, [len(own)])
        unseen, every = np.bincount(caption, is_unseen), np.bincount(caption)
        return {
            "novel": PERCENT * int(is_new.sum()) / len(captions),
            "unseen pairs": PERCENT * int((unseen > UNSEEN * every).sum()) / len(captions),
        }


def caption_keys(captions: CaptionWords[str]) -> tuple[np.ndarray, np.ndarray]:
    """A number of each caption, then one of each pair of its words; and the captions of the pairs.

    The first is a sum modulo 2^64 of the words' random numbers, times powers for their places: two
    captions that differ have the same by a chance of about 2^-60, so that of 10^5 beside 10^8 of
    training any two do once in a hundred thousand times. Those of pairs are exact.
    """
    caption = np.repeat(np.arange(len(captions)), captions.lengths)
    place = np.arange(len(caption)) - captions.starts[caption]
    words, sums = captions.values.astype(np.uint64), np.zeros(len(captions), np.uint64)
    random = np.random.PCG64(0).random_raw(len(captions.lexicon))
    np.add.at(sums, caption, random[words] * BASE ** place.astype(np.uint64))
    inner = caption[1:] == caption[:-1]
    return np.append(sums, (words[:-1] << 32 | words[1:])[inner]), caption[1:][inner]


def is_among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of the values are known."""
    known = np.sort(known)  # as np.isin is far slower
    return np.searchsorted(known, values) < np.searchsorted(known, values, "right")


def caption_statistics(
    words: Sequence[Sequence[str]],
    finished: Sequence[bool],
    entropies: Sequence[Sequence[float]],
    training: TrainingCaptions | None,
    language: str = ENGLISH,
) -> dict[str, float]:
    """All statistics of a model's captions, at least one.

    Args:
        words: of each caption.
        finished: whether it was not cut at the longest length.
        entropies: of its words and its end, in nats; none of a search that does not know them.
        training: the captions of training, if they are known.
        language: of the captions.
    """
    statistics = wording(words, language)
    if training:
        statistics |= training.compared(words)
    if not all(entropies):  # as of a library
        return statistics
    return {
        **statistics,
        "ended": PERCENT * sum(finished) / len(finished),
        "first word entropy": fmean(first for first, *_ in entropies),
        "word entropy": fmean(chain.from_iterable(entropies)),
    }


def disagreements(
    ours: Sequence[Collection[str]], theirs: Sequence[Collection[str]]
) -> dict[str, Difference]:
    """Count the images whose captions have a word, of all words that differ.

    The largest differences come first.

    An interval is that of a word chosen beforehand, one among hundreds may miss 0 by chance;
    `adjusted` is corrected for all that are returned.

    Args:
        ours: words, or other terms, of each of B captions.
        theirs: of the other system's captions of the same images.
    """
    pairs = [(set(one), set(other)) for one, other in zip(ours, theirs, strict=True)]
    mine = Counter(chain.from_iterable(one for one, _ in pairs))
    others = Counter(chain.from_iterable(other for _, other in pairs))
    both = Counter(chain.from_iterable(one & other for one, other in pairs))
    differing = [word for word in mine | others if not mine[word] == others[word] == both[word]]
    differing.sort(key=lambda word: (-abs(mine[word] - others[word]), word))
    return corrected(
        {word: exact_difference(mine[word], others[word], both[word]) for word in differing}
    )


def exact_difference(ours: int, theirs: int, both: int) -> Difference:
    """Compare the numbers of images whose captions have something in common, by an exact test.

    Without a difference either system is as likely the only one that has it (McNemar,
    Psychometrika 1947); of the images that only one has it in, as many as there are, the share of
    ours has the interval of Clopper and Pearson (Biometrika 1934).

    Args:
        ours: images in whose caption of ours it is.
        theirs: the same of theirs.
        both: images in whose captions of either it is.
    """
    from scipy.special import bdtr, betaincinv  # here, because it takes a third of a second

    mine, others = ours - both, theirs - both
    either = mine + others
    low = betaincinv(mine, others + 1, (1 - LEVEL) / 2) if mine else 0.0
    high = betaincinv(mine + 1, others, (1 + LEVEL) / 2) if others else 1.0
    p = min(1.0, 2 * bdtr(min(mine, others), either, 0.5))
    return Difference(
        ours=ours,
        theirs=theirs,
        difference=mine - others,
        low=float(either * (2 * low - 1)),
        high=float(either * (2 * high - 1)),
        p=float(p),
        training=IMAGES_ONLY,
    )
