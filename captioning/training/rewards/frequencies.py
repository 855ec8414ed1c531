"""In how many images of the training set each n-gram occurs.

K n-grams.
"""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from captioning.training.rewards.ngrams import Ints, ngrams, padded

_CHUNK = 1024
"""Images that are counted at a time, for the sake of memory."""


class DocumentFrequencies:
    """df of CIDEr-D (Vedantam et al. 2015, section 4): an n-gram counts once for an image, whatever its references say.

    Attributes:
        images: |I|.
        keys: `[K]`, ascending.
        counts: `[K]`, the images with at least one reference that has the n-gram.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[int]]], vocabulary: int) -> None:
        """Counts the references of each image, token ids below `vocabulary`."""
        self.images = len(references)
        chunks = list(_counted(references, vocabulary)) or [(np.zeros(0, np.int64),) * 2]
        keys, counts = (np.concatenate(column) for column in zip(*chunks, strict=True))
        self.keys, inverse = np.unique(keys, return_inverse=True)
        self.counts = np.bincount(inverse, counts, len(self.keys)).astype(np.int64)

    def idf(self, keys: Ints) -> NDArray[np.float64]:
        """log |I| - log max(1, df) of each n-gram."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        counts = np.where(self.keys[place] == keys, self.counts[place], 1)
        return np.log(max(self.images, 1)) - np.log(counts)

    @property
    def table(self) -> Ints:
        """All of it in one, `[K + 1, 2]`: |I| and the digest's first 63 bits, then each n-gram and its count."""
        return np.concatenate([[[self.images, int(self.digest[:16], 16) >> 1]], np.stack([self.keys, self.counts], 1)])

    @property
    def digest(self) -> str:
        """SHA-256 over numbers of images, n-grams and counts."""
        return hashlib.sha256(
            np.array([self.images]).tobytes() + self.keys.tobytes() + self.counts.tobytes()
        ).hexdigest()


def _counted(references: Sequence[Sequence[Sequence[int]]], vocabulary: int) -> Iterator[tuple[Ints, Ints]]:
    """Of some images after the other: n-grams, and how many images have each."""
    for start in range(0, len(references), _CHUNK):
        some = references[start : start + _CHUNK]
        image = np.repeat(np.arange(len(some)), [len(captions) for captions in some])
        found = ngrams(*padded([caption for captions in some for caption in captions]), vocabulary)
        order = np.lexsort((found.key, image[found.row]))
        pairs = np.stack([image[found.row], found.key])[:, order]
        once = np.ones(len(order), bool)
        once[1:] = (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)
        yield np.unique(pairs[1, once], return_counts=True)
