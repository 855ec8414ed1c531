"""CIDEr-D (Vedantam et al., CVPR 2015) and the counts of BLEU, on ids of words, both as in
pycocoevalcap; CIDEr-D also as in ruotianluo/cider (`pyciderevalcap/ciderD/ciderD_scorer.py`).

B images, M captions, R references of all B images, T tokens, K n-grams, V words.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, count, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from captioning.files import MAX_CHARACTERS
from captioning.metrics.metric import (
    PYCOCOEVALCAP,
    Fields,
    Images,
    Metric,
    Texts,
    first_captions,
    main_score,
)
from captioning.metrics.statistics import MetricResult, is_constant

ORDERS = 4  # n is 1 to 4
SIGMA = 6.0  # of CIDEr-D's Gaussian over differences of length
_CHUNK = 1024  # images counted at a time, to bound the memory

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def ngrams(
    groups: Sequence[Sequence[Sequence[int]]], vocabulary: int
) -> tuple[csr_array, Ints, Ints]:
    """Count the n-grams in the captions of each group.

    Returns counts of G groups `[G, K]`; ascending keys `[K]`, numbers that differ for different
    n-grams of any n; and n - 1 `[K]`. Ids are below `vocabulary`.
    """
    # A key is a number in a base above V whose digits are ids + 1, so keys are unique for V below
    # 55,000. For larger V they are modulo 2^64, and as the base is odd, they collide as rarely as
    # good hashes.
    captions = [*chain.from_iterable(groups)]
    tokens = np.fromiter(chain.from_iterable(captions), np.int64)  # of all captions in a row
    caption = np.repeat(np.arange(len(captions)), [*map(len, captions)])
    base = np.int64((vocabulary + 1) | 1)
    key, found = np.zeros_like(tokens), []
    for n in range(ORDERS):
        # of the n-grams that begin at each token, where one caption has them
        key = key[: len(tokens) - n] * base + tokens[n:] + 1
        whole = caption[: len(key)] == caption[n:]
        found.append((key[whole], caption[n:][whole], np.full(whole.sum(), n)))
    every, caption, order = (np.concatenate(column) for column in zip(*found, strict=True))
    keys, column = np.unique(every, return_inverse=True)
    orders = np.zeros_like(keys)
    orders[column] = order
    group = np.repeat(np.arange(len(groups)), [*map(len, groups)])[caption]
    shape = len(groups), len(keys)
    return csr_array((np.ones(len(column)), (group, column)), shape), keys, orders


class DocumentFrequencies:
    """Document frequencies of CIDEr-D (Vedantam et al. 2015, section 4): the number of images with
    each n-gram in any reference.
    """

    def __init__(self, references: Iterable[Sequence[Sequence[int]]], vocabulary: int):
        self.images, each, found = 0, iter(references), array("q")  # |I|
        while some := [*islice(each, _CHUNK)]:
            counts, keys, _ = ngrams(some, vocabulary)
            found.frombytes(keys[counts.indices].tobytes())  # of each image
            self.images += len(some)
        # `[K]`, ascending, and the number of images with each
        self.keys, self.counts = np.unique(np.asarray(found), return_counts=True)

    def idf(self, keys: Ints) -> Floats:
        """log |I| - log max(1, df) of each n-gram."""
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        counts = np.where(self.keys[index] == keys, self.counts[index], 1)
        return np.log(max(self.images, 1)) - np.log(counts)

    @property
    def digest(self) -> str:
        sha = hashlib.sha256()
        for content in ([self.images], self.keys, self.counts):
            sha.update(np.asarray(content, np.int64).tobytes())
        return sha.hexdigest()


class Pairs:
    """P pairs of a candidate and a reference of its image; each image has as many candidates."""

    def __init__(
        self,
        candidates: Sequence[Sequence[int]],
        references: Sequence[Sequence[Sequence[int]]],
        vocabulary: int,
    ):
        self.candidates = len(candidates)
        every = [*candidates, *chain.from_iterable(references)]
        self.length = np.array([*map(len, every)], np.int64)  # `[M + R]`
        # `[M + R, K]` and `[K]`
        self.counts, self.keys, order = ngrams([[caption] for caption in every], vocabulary)
        self.orders = np.eye(ORDERS)[order]  # `[K, 4]`, 1 for the n of an n-gram
        sizes = np.array([*map(len, references)])
        first = np.repeat(sizes.cumsum() - sizes, self.candidates // len(sizes))  # `[M]`
        sizes = np.repeat(sizes, self.candidates // len(sizes))
        # `[P]`, rows of the candidate, in ascending order, and of the reference
        self.own = np.repeat(np.arange(self.candidates), sizes)
        start = first - (sizes.cumsum() - sizes)
        self.other = self.candidates + start[self.own] + np.arange(len(self.own))

    def cider_d(self, frequencies: DocumentFrequencies) -> Floats:
        """Ten times the mean of the clipped cosines over n and references, with a length penalty,
        `[M]`.
        """
        weighted = self.counts.multiply(frequencies.idf(self.keys)).tocsr()
        theirs = weighted[self.other]
        dots = weighted[self.own].minimum(theirs).multiply(theirs) @ self.orders  # `[P, 4]`
        lengths = np.sqrt(weighted.power(2) @ self.orders)  # of vectors
        norms = lengths[self.own] * lengths[self.other]
        cosines = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0).mean(1)
        # the reference code uses the number of bigrams as the length
        bigrams = np.maximum(self.length - 1, 0)
        longer = bigrams[self.own] - bigrams[self.other]
        penalised = cosines * np.exp(-(longer**2) / (2 * SIGMA**2))
        sums, references = (
            np.bincount(self.own, each, self.candidates) for each in (penalised, None)
        )
        return 10 * sums / np.maximum(references, 1)

    def bleu_counts(self) -> Floats:
        """`[M, 10]`: of each candidate the length, the closest reference length, the numbers of its
        n-grams and of those that are matched, n = 1..4.
        """
        matches = self.counts[self.own].minimum(self.counts[self.other]).tocoo()
        # an n-gram counts as often as in the reference that has most of it
        slots, slot = np.unique(
            self.own[matches.row] * len(self.keys) + matches.col, return_inverse=True
        )
        most = np.zeros(len(slots))
        np.maximum.at(most, slot, matches.data)
        caption, key = np.divmod(slots, len(self.keys))
        shape = self.candidates, len(self.keys)
        correct = csr_array((most, (caption, key)), shape) @ self.orders
        length, closest = self.length[: self.candidates], np.zeros(self.candidates)
        longer = self.length[self.other] - self.length[self.own]
        # the last that is written stays: the closest, of two the shorter
        far_first = np.lexsort((longer > 0, np.abs(longer)))[::-1]
        closest[self.own[far_first]] = self.length[self.other[far_first]]
        guesses = np.maximum(length[:, None] - np.arange(ORDERS), 0)
        return np.column_stack([length, closest, guesses, correct])


class Known(NamedTuple):
    """Texts of references by the ids of their words."""

    words: dict[str, int]
    ids: list[list[list[int]]]
    vocabulary: int
    frequencies: DocumentFrequencies


@lru_cache(maxsize=4)  # of validation and test; many systems are scored against the same
def known(references: tuple[tuple[str, ...], ...]) -> Known:
    """Count the references' words and n-grams, which takes as long as scoring captions."""
    words: dict[str, int] = {}
    ids = [
        [[words.setdefault(word, len(words)) for word in text.split()] for text in texts]
        for texts in references
    ]
    vocabulary = len(words) + MAX_CHARACTERS
    return Known(words, ids, vocabulary, DocumentFrequencies(ids, vocabulary))


def _ids(caption: Sequence[str], words: Mapping[str, int]) -> list[int]:
    """Ids of a caption's words; one that no reference has is told from its others by its place."""
    own = dict(zip(caption, count(len(words)), strict=False))
    return [words.get(word, own[word]) for word in caption]


def scored_pairs(captions: Texts, references: Texts) -> Iterator[Pairs]:
    """The first captions and their references, some images at a time."""
    words, theirs, vocabulary, _ = known(tuple(map(tuple, references)))
    texts = first_captions(captions)
    for start in range(0, len(texts), _CHUNK):
        part = slice(start, start + _CHUNK)
        ids = [_ids(text.split(), words) for text in texts[part]]
        yield Pairs(ids, theirs[part], vocabulary)


class Cider(Metric):
    """CIDEr-D, 0-10, with the document frequencies of the references.

    NaN where it is 0 for any captions.
    """

    name = "CIDEr"
    scores = (main_score("CIDEr", "x 100", mean=True),)

    def signature(self, references: Texts) -> Fields:
        own = {"variant": "CIDEr-D", "df": len(references)}
        return own | PYCOCOEVALCAP  # which has equal results

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        if is_constant(references):
            return MetricResult({self.name: np.nan}, {self.name: [np.nan] * len(captions)})
        frequencies, scores = known(tuple(map(tuple, references))).frequencies, list[float]()
        for pairs in scored_pairs(captions, references):
            scores += pairs.cider_d(frequencies).tolist()
        return MetricResult.from_means({self.name: scores})
