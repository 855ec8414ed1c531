"""N-grams of token ids as integers, counted caption by caption.

M captions of up to T tokens, K n-grams, V words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

ORDERS = 4
"""n is 1 to 4."""
_NONE = np.iinfo(np.int64).max

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ngrams:
    """The different n-grams of each of M captions, caption by caption, the shorter first.

    Attributes:
        captions: M.
        row: `[K]`, the caption.
        order: `[K]`, n - 1.
        key: `[K]`, a number for the n-gram; another n-gram, also of another n, has another one.
        count: `[K]`, how often the caption has it.
        length: `[M]`, tokens of each caption.
    """

    captions: int
    row: Ints
    order: Ints
    key: Ints
    count: Ints
    length: Ints


def padded(captions: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Captions as `[M, T]`, filled up with zeros, and their lengths `[M]`."""
    length = np.fromiter(map(len, captions), np.int64, len(captions))
    tokens = np.zeros((len(captions), int(length.max(initial=1))), np.int64)
    tokens[np.arange(tokens.shape[1]) < length[:, None]] = np.fromiter(chain.from_iterable(captions), np.int64)
    return tokens, length


def ngrams(tokens: Ints, length: Ints, vocabulary: int) -> Ngrams:
    """The n-grams of `tokens` `[M, T]`, of which the first `length` `[M]` count; ids are below `vocabulary`.

    Keys are numbers in a base above V whose digits are ids + 1: different n-grams have different ones as long as V is
    below 55,000. Beyond it they are taken modulo 2^64, and the base is odd, so that they collide as good hashes do.
    """
    m, t = tokens.shape
    base = np.int64((vocabulary + 1) | 1)
    keys = np.full((m, ORDERS, t), _NONE)
    key = np.zeros((m, t + 1), np.int64)
    for n in range(min(ORDERS, t)):
        key = key[:, :-1] * base + tokens[:, n:] + 1  # [M, T - n], of the n-grams that begin at each token
        keys[:, n, : t - n] = np.where(np.arange(n, t) < length[:, None], key, _NONE)
    keys.sort(axis=-1)
    first = np.ones(keys.shape, bool)
    first[..., 1:] = keys[..., 1:] != keys[..., :-1]
    places = np.flatnonzero(first)
    count, found = np.diff(places, append=first.size), keys.ravel()[places]
    real = found != _NONE
    places = places[real]
    return Ngrams(m, places // (ORDERS * t), places // t % ORDERS, found[real], count[real], length)
