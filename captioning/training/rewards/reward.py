"""CIDEr-D and BLEU-4 of single captions, on token ids, with the end of a caption among its n-grams.

B images, S captions of each, R references of all B images, M = B S captions, T tokens, K n-grams.

Sources: CIDEr-D, Vedantam et al., CVPR 2015, as in ruotianluo/cider (`pyciderevalcap/ciderD/ciderD_scorer.py`); BLEU,
Papineni et al., ACL 2002, of one caption as in pycocoevalcap; the end as a token, Rennie et al., CVPR 2017, appendix E:
without it fragments such as "a man with a" have a better reward than what ends properly.
"""

from collections.abc import Sequence
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from captioning.config.types import NotNegative, validated
from captioning.tokens import EOS, PAD
from captioning.training.rewards.frequencies import DocumentFrequencies
from captioning.training.rewards.ngrams import ORDERS, Ints, Ngrams, ngrams

SIGMA = 6.0
"""Of CIDEr-D's Gaussian over differences of length."""
SMALL, TINY = 1e-9, 1e-15
"""What pycocoevalcap adds to the denominators and numerators of BLEU."""

Floats = NDArray[np.float64]


class Reward:
    """r = cider CIDEr-D + bleu4 BLEU-4 of a caption against the references of its image, both of order 1.

    Args:
        cider: weight of CIDEr-D, on the scale where papers print 100 for 1.
        bleu4: weight of sentence BLEU-4.
    """

    @validated
    def __init__(self, cider: NotNegative = 1.0, bleu4: NotNegative = 0.0) -> None:
        if cider == bleu4 == 0:
            raise ValueError("cider=0 and bleu4=0 reward nothing; give one of them a weight")
        self.cider, self.bleu4 = cider, bleu4

    @property
    def signature(self) -> str:
        """As Hu et al. 2023 (SacreEOS) write CIDEr-D; other weights than 1 come first."""
        parts = ((self.cider, f"Cider-D[n{ORDERS},s{SIGMA}]"), (self.bleu4, f"BLEU[n{ORDERS}]"))
        return "+".join(name if weight == 1 else f"{weight:g}*{name}" for weight, name in parts if weight)

    def prepare(self, references: Sequence[Sequence[Sequence[int]]], vocabulary: int, eos: bool) -> None:
        """Takes the training set, from which the document frequencies come: of training images alone.

        Args:
            references: of each image its captions as ids, UNK among them, without BOS and EOS.
            vocabulary: V.
            eos: the end is a token of references, document frequencies and candidates.
        """
        self.eos, self._vocabulary = eos, vocabulary
        end = [EOS] if eos else []
        ended = [[[*caption, *end] for caption in captions] for captions in references]
        self.frequencies = DocumentFrequencies(ended, vocabulary)
        every = [caption for captions in ended for caption in captions]
        self._image_start = _starts([len(captions) for captions in ended])
        self._start = _starts([len(caption) for caption in every])
        self._tokens = np.fromiter(chain.from_iterable(every), np.int32)

    def __call__(self, index: Ints, tokens: Ints) -> Floats:
        """`[B, S]`.

        Args:
            index: `[B]`, each image's position in the training set.
            tokens: `[B, S, T]`, captions as ids; EOS is the last of one that has ended, PAD may follow.
        """
        b, s, t = tokens.shape
        rows = tokens.reshape(-1, t)
        own = ngrams(rows, ((rows != PAD) & ((rows != EOS) | self.eos)).sum(axis=1), self._vocabulary)
        theirs, image, number = self._references(index)
        match = _Match(own, np.repeat(np.arange(b), s), theirs, image, number)
        score = np.zeros(b * s)
        if self.cider:
            score += self.cider * match.cider_d(self.frequencies)
        if self.bleu4:
            score += self.bleu4 * match.bleu()
        return score.reshape(b, s)

    def _references(self, index: Ints) -> tuple[Ngrams, Ints, Ints]:
        """N-grams of the references of some images; of each reference the image, 0..B-1, and its number there."""
        first, end = self._image_start[index], self._image_start[index + 1]
        image = np.repeat(np.arange(len(index)), end - first)
        number = np.arange(len(image)) - np.repeat(np.cumsum(end - first) - (end - first), end - first)
        caption = first[image] + number
        start, length = self._start[caption], self._start[caption + 1] - self._start[caption]
        places = np.arange(int(length.max(initial=1)))
        tokens = self._tokens[np.minimum(start[:, None] + places, len(self._tokens) - 1)].astype(np.int64)
        return ngrams(tokens, length, self._vocabulary), image, number


class _Match:
    """N-grams of M candidates beside those of the references of their images."""

    def __init__(self, own: Ngrams, own_image: Ints, theirs: Ngrams, image: Ints, number: Ints) -> None:
        self.own, self.theirs, self.number = own, theirs, number
        self.own_image, self.image = own_image, image
        self.references = np.bincount(image, minlength=int(own_image.max()) + 1)  # [B]
        keys, inverse = np.unique(np.concatenate([own.key, theirs.key]), return_inverse=True)
        self._keys, self._own_key, self._their_key = keys, inverse[: len(own.key)], inverse[len(own.key) :]
        # an n-gram of an image's references has one slot, and a column for each of these
        slots, self._slot = np.unique(image[theirs.row] * len(keys) + self._their_key, return_inverse=True)
        wanted = own_image[own.row] * len(keys) + self._own_key
        place = np.minimum(np.searchsorted(slots, wanted), len(slots) - 1)
        self._hit = slots[place] == wanted  # [K]
        self._place = place[self._hit]
        self._slots = len(slots)

    def _beside(self, values: Floats) -> Floats:
        """Of the references' n-grams `[K']` those that each candidate's n-gram meets, `[hits, references]`."""
        table = np.zeros((self._slots, int(self.references.max())))
        table[self._slot, self.number[self.theirs.row]] = values
        return table[self._place]

    def _summed(self, values: Floats) -> Floats:
        """`[hits, ...]` summed for each candidate and n: `[M, 4, ...]`."""
        total = np.zeros((self.own.captions * ORDERS, *values.shape[1:]))
        np.add.at(total, (self.own.row * ORDERS + self.own.order)[self._hit], values)
        return total.reshape(self.own.captions, ORDERS, *values.shape[1:])

    def cider_d(self, frequencies: DocumentFrequencies) -> Floats:
        """`[M]`: the mean over n and references of the clipped cosines, times 10, with a penalty of length."""
        idf = frequencies.idf(self._keys)
        g_own, g_their = self.own.count * idf[self._own_key], self.theirs.count * idf[self._their_key]
        beside = self._beside(g_their)
        dots = self._summed(np.minimum(g_own[self._hit, None], beside) * beside)  # [M, 4, references]
        their_norm, their_length = (
            self._by_reference(_norms(self.theirs, g_their)),
            self._by_reference(self.theirs.length),
        )
        norms = _norms(self.own, g_own)[..., None] * their_norm[self.own_image].swapaxes(1, 2)
        cosines = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)
        # the reference code takes the number of bigrams for the length
        lengths = np.maximum(self.own.length - 1, 0)[:, None] - np.maximum(their_length[self.own_image] - 1, 0)
        penalised = cosines.mean(axis=1) * np.exp(-(lengths**2) / (2 * SIGMA**2))
        return 10 * penalised.sum(axis=1) / np.maximum(self.references[self.own_image], 1)

    def _by_reference(self, values: NDArray) -> NDArray:
        """`[R, ...]` as `[B, references, ...]`, zero where an image has fewer."""
        table = np.zeros((len(self.references), int(self.references.max()), *values.shape[1:]), values.dtype)
        table[self.image, self.number] = values
        return table

    def bleu(self) -> Floats:
        """BLEU-4 of each candidate for itself, `[M]`, with the closest reference length."""
        clipped = np.minimum(self.own.count[self._hit], self._beside(self.theirs.count.astype(float)).max(axis=1))
        correct, length = self._summed(clipped), self.own.length
        guesses = np.maximum(length[:, None] - np.arange(ORDERS), 0)
        precision = ((correct + TINY) / (guesses + SMALL)).prod(axis=1) ** (1 / ORDERS)
        lengths = self._by_reference(self.theirs.length)[self.own_image]
        is_one = np.arange(lengths.shape[1]) < self.references[self.own_image, None]
        # of two that are equally close the shorter
        distance = np.where(is_one, 2 * np.abs(lengths - length[:, None]) + (lengths > length[:, None]), np.inf)
        closest = lengths[np.arange(len(lengths)), distance.argmin(axis=1)]
        return precision * np.exp(np.minimum(1 - (closest + SMALL) / (length + TINY), 0))


def _norms(found: Ngrams, weights: Floats) -> Floats:
    """The length of each caption's vector for each n, `[M, 4]`."""
    squares = np.bincount(found.row * ORDERS + found.order, weights**2, found.captions * ORDERS)
    return np.sqrt(squares).reshape(-1, ORDERS)


def _starts(lengths: Sequence[int]) -> Ints:
    return np.fromiter(accumulate(lengths, initial=0), np.int64, len(lengths) + 1)
