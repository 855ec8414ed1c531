"""CIDEr-D (Vedantam et al., CVPR 2015) and BLEU-4 of single captions, on ids of their words.

Both as in pycocoevalcap; CIDEr-D also as in ruotianluo/cider
(`pyciderevalcap/ciderD/ciderD_scorer.py`).

B images, M captions, R references of all B images, T tokens, K n-grams, V words.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from captioning.files import MAX_CHARACTERS
from captioning.metrics.metric import Texts
from captioning.metrics.statistics import SMALL, TINY

ORDERS = 4  # n is 1 to 4
SIGMA = 6.0  # of CIDEr-D's Gaussian over differences of length
_NONE = np.iinfo(np.int64).max
_CHUNK = 1024  # images counted at a time, to bound the memory

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ngrams:
    """The distinct n-grams of each of M captions, caption by caption, shorter n-grams first."""

    captions: int  # M
    row: Ints  # `[K]`, the caption
    order: Ints  # `[K]`, n - 1
    key: Ints  # `[K]`, a number for the n-gram, different for different n-grams of any n
    count: Ints  # `[K]`, occurrences in the caption
    length: Ints  # `[M]`, tokens of each caption

    def norms(self, weights: Floats) -> Floats:
        """Euclidean norms `[M, 4]` of each caption's vector for each n.

        From n-gram weights `[K]`.
        """
        squares = np.bincount(self.row * ORDERS + self.order, weights**2, self.captions * ORDERS)
        return np.sqrt(squares).reshape(-1, ORDERS)


def padded(captions: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Captions as `[M, T]`, padded with zeros, and their lengths `[M]`."""
    length = np.fromiter(map(len, captions), np.int64, len(captions))
    tokens = np.zeros((len(captions), int(length.max(initial=1))), np.int64)
    tokens[np.arange(tokens.shape[1]) < length[:, None]] = np.fromiter(
        chain.from_iterable(captions), np.int64
    )
    return tokens, length


def ngrams(tokens: Ints, length: Ints, vocabulary: int) -> Ngrams:
    """The n-grams of the first `length` `[M]` of `tokens` `[M, T]`; ids are below `vocabulary`."""
    # A key is a number in a base above V whose digits are ids + 1, so keys are unique for V below
    # 55,000. For larger V they are modulo 2^64, and as the base is odd, they collide as rarely as
    # good hashes.
    m, t = tokens.shape
    base = np.int64((vocabulary + 1) | 1)
    keys = np.full((m, ORDERS, t), _NONE)
    key = np.zeros((m, t + 1), np.int64)
    for n in range(min(ORDERS, t)):
        # [M, T - n], of the n-grams that begin at each token
        key = key[:, :-1] * base + tokens[:, n:] + 1
        keys[:, n, : t - n] = np.where(np.arange(n, t) < length[:, None], key, _NONE)
    keys.sort(axis=-1)
    first = np.ones(keys.shape, bool)
    first[..., 1:] = keys[..., 1:] != keys[..., :-1]
    starts = np.flatnonzero(first)
    count, grams = np.diff(starts, append=first.size), keys.ravel()[starts]
    real = grams != _NONE
    starts = starts[real]
    return Ngrams(m, starts // (ORDERS * t), starts // t % ORDERS, grams[real], count[real], length)


class DocumentFrequencies:
    """Document frequencies of CIDEr-D (Vedantam et al. 2015, section 4).

    The number of images with each n-gram in any reference.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[int]]], vocabulary: int):
        self.images = len(references)  # |I|
        chunks = [(np.zeros(0, np.int64),) * 2]  # n-grams, and the number of images with each
        for start in range(0, len(references), _CHUNK):
            chunk = references[start : start + _CHUNK]
            image = np.repeat(np.arange(len(chunk)), [len(captions) for captions in chunk])
            grams = ngrams(*padded(list(chain.from_iterable(chunk))), vocabulary)
            keys, column = np.unique(grams.key, return_inverse=True)
            held = csr_array((grams.count, (image[grams.row], column)), (len(chunk), len(keys)))
            chunks.append((keys, (held > 0).sum(0)))
        keys, counts = (np.concatenate(column) for column in zip(*chunks, strict=True))
        self.keys, inverse = np.unique(keys, return_inverse=True)  # `[K]`, ascending
        self.counts = np.bincount(inverse, counts, len(self.keys)).astype(np.int64)

    def idf(self, keys: Ints) -> NDArray[np.float64]:
        """log |I| - log max(1, df) of each n-gram."""
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        counts = np.where(self.keys[index] == keys, self.counts[index], 1)
        return np.log(max(self.images, 1)) - np.log(counts)

    @property
    def digest(self) -> str:
        content = np.concatenate([[self.images], self.keys, self.counts])
        return hashlib.sha256(content.tobytes()).hexdigest()


class Match:
    """N-grams of M candidates, matched with those of the references of their B images.

    `own_image` `[M]` is the place of a candidate's image among `references`.
    """

    def __init__(
        self,
        own: Ngrams,
        own_image: Ints,
        references: Sequence[Sequence[Sequence[int]]],
        vocabulary: int,
    ):
        theirs = ngrams(*padded(list(chain.from_iterable(references))), vocabulary)
        self.references = np.array([len(captions) for captions in references])  # [B]
        image = np.repeat(np.arange(len(references)), self.references)
        self.own, self.own_image, self.theirs, self.image = own, own_image, theirs, image
        self.number = np.concatenate([*map(np.arange, self.references)])
        self._keys, inverse = np.unique(np.concatenate([own.key, theirs.key]), return_inverse=True)
        self._own_key, self._their_key = inverse[: len(own.key)], inverse[len(own.key) :]
        # one slot for each n-gram of an image's references, with a column per reference
        slots, self._slot = np.unique(
            image[theirs.row] * len(self._keys) + self._their_key, return_inverse=True
        )
        wanted = own_image[own.row] * len(self._keys) + self._own_key
        index = np.minimum(np.searchsorted(slots, wanted), len(slots) - 1)
        self._hit = slots[index] == wanted  # [K]
        self._hit_slot, self._slots = index[self._hit], len(slots)

    def _matched(self, values: Floats) -> Floats:
        """Values of n-grams that candidates match, `[hits, references]`.

        From those of the references' n-grams `[K']`.
        """
        table = np.zeros((self._slots, int(self.references.max())))
        table[self._slot, self.number[self.theirs.row]] = values
        return table[self._hit_slot]

    def _summed(self, values: Floats) -> Floats:
        """Sum `[hits, ...]` for each candidate and n: `[M, 4, ...]`."""
        total = np.zeros((self.own.captions * ORDERS, *values.shape[1:]))
        np.add.at(total, (self.own.row * ORDERS + self.own.order)[self._hit], values)
        return total.reshape(self.own.captions, ORDERS, *values.shape[1:])

    def cider_d(self, frequencies: DocumentFrequencies) -> Floats:
        """Mean of the clipped cosines over n and references, `[M]`.

        Times 10, with a length penalty.
        """
        idf = frequencies.idf(self._keys)
        g_own = self.own.count * idf[self._own_key]
        g_their = self.theirs.count * idf[self._their_key]
        matched = self._matched(g_their)
        # [M, 4, references]
        dots = self._summed(np.minimum(g_own[self._hit, None], matched) * matched)
        their_norm = self._by_reference(self.theirs.norms(g_their))[self.own_image].swapaxes(1, 2)
        norms = self.own.norms(g_own)[..., None] * their_norm
        cosines = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)
        # the reference code uses the number of bigrams as the length
        their_length = self._by_reference(self.theirs.length)[self.own_image]
        lengths = np.maximum(self.own.length - 1, 0)[:, None] - np.maximum(their_length - 1, 0)
        penalised = cosines.mean(1) * np.exp(-(lengths**2) / (2 * SIGMA**2))
        return 10 * penalised.sum(1) / np.maximum(self.references[self.own_image], 1)

    def _by_reference(self, values: NDArray) -> NDArray:
        """Arrange `[R, ...]` as `[B, references, ...]`, padded with zeros."""
        table = np.zeros(
            (len(self.references), int(self.references.max()), *values.shape[1:]), values.dtype
        )
        table[self.image, self.number] = values
        return table

    def bleu(self) -> Floats:
        """Sentence BLEU-4 of each candidate, `[M]`, with the closest reference length."""
        clipped = np.minimum(
            self.own.count[self._hit], self._matched(self.theirs.count.astype(float)).max(axis=1)
        )
        correct, length = self._summed(clipped), self.own.length
        guesses = np.maximum(length[:, None] - np.arange(ORDERS), 0)
        precision = ((correct + TINY) / (guesses + SMALL)).prod(axis=1) ** (1 / ORDERS)
        lengths = self._by_reference(self.theirs.length)[self.own_image]
        is_one = np.arange(lengths.shape[1]) < self.references[self.own_image, None]
        # Of two that are equally close, the shorter.
        longer = lengths - length[:, None]
        distance = np.where(is_one, 2 * np.abs(longer) + (longer > 0), np.inf)
        closest = lengths[np.arange(len(lengths)), distance.argmin(axis=1)]
        return precision * np.exp(np.minimum(1 - (closest + SMALL) / (length + TINY), 0))


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


def cider_d(captions: Sequence[str], references: Texts) -> list[float]:
    """CIDEr-D of a caption of each image, 0-10, with the document frequencies of the references."""
    words, theirs, vocabulary, frequencies = known(tuple(map(tuple, references)))
    scores: list[float] = []
    for start in range(0, len(captions), _CHUNK):
        part = slice(start, start + _CHUNK)
        # a word that no reference has is told from the caption's others by its first place
        ids = [
            [words.get(word, len(words) + text.index(word)) for word in text]
            for text in map(str.split, captions[part])
        ]
        own = ngrams(*padded(ids), vocabulary)
        match = Match(own, np.arange(own.captions), theirs[part], vocabulary)
        scores += match.cider_d(frequencies).tolist()
    return scores
