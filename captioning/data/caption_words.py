"""Captions as numbers of their words, in which words are counted and encoded without a loop."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, Self, TypeVar

import numpy as np

Word = TypeVar("Word")
PART = 1 << 18
"""Captions whose words are looked at together, to bound the memory."""
FEWER = 1 << 14
"""Lists that are copied, or given as Python objects, together."""


class Lexicon(dict[Any, int]):
    """The number of each word, in the order in which they were first asked for."""

    def __missing__(self, word: Any) -> int:
        number = self[word] = len(self)
        return number


@dataclass(frozen=True)
class Ragged:
    """N lists of different lengths, one behind the other in one array.

    Attributes:
        values: of all lists.
        starts: `[N + 1]` int64, where each begins in `values`; last where the last one ends.
    """

    values: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """`[N]` values of each list."""
        return np.diff(self.starts)

    def places(self, chosen: np.ndarray) -> np.ndarray:
        """Where in `values` the lists of these numbers are."""
        starts = offsets(self.starts[chosen + 1] - self.starts[chosen])
        moved = np.repeat(self.starts[chosen] - starts[:-1], np.diff(starts))
        return moved + np.arange(starts[-1])

    def chosen(self, chosen: np.ndarray) -> Iterator[np.ndarray]:
        """Copies of the values of the lists of these numbers, of some lists at once."""
        for first in range(0, len(chosen), FEWER):
            yield self.values[self.places(chosen[first : first + FEWER])]

    def take(self, chosen: np.ndarray) -> Self:
        """Copies of the lists of these numbers."""
        starts = offsets(self.starts[chosen + 1] - self.starts[chosen])
        values, end = np.empty(starts[-1], self.values.dtype), 0
        for part in self.chosen(chosen):
            values[end : end + len(part)] = part
            end += len(part)
        return replace(self, values=values, starts=starts)


@dataclass(frozen=True)
class CaptionWords(Ragged, Generic[Word]):
    """The words of N captions, or their ids, as numbers of a lexicon, which may have others too.

    It is a sequence of the words of each caption.

    Attributes:
        lexicon: different words, or their ids in a vocabulary, in which several may be UNK.
    """

    lexicon: Sequence[Word]

    @classmethod
    def of(
        cls, captions: Iterable[Sequence[Word]], lexicon: Iterable[Word] = ()
    ) -> "CaptionWords[Word]":
        """The words of captions; themselves if they are numbered already.

        Words that are not in `lexicon` are added at its end.
        """
        if isinstance(captions, cls):
            return captions
        known = Lexicon({word: number for number, word in enumerate(lexicon)})
        numbers, starts = array("i"), array("q", [0])
        for words in captions:
            numbers.extend(map(known.__getitem__, words))
            starts.append(len(numbers))
        return CaptionWords(np.asarray(numbers), np.asarray(starts), list(known))

    def __getitem__(self, caption: int) -> tuple[Word, ...]:
        start, end = self.starts[caption : caption + 2].tolist()
        return tuple([self.lexicon[number] for number in self.values[start:end].tolist()])

    def __iter__(self) -> Iterator[tuple[Word, ...]]:
        for first in range(0, len(self), FEWER):
            part = self.part(slice(first, first + FEWER))
            words = list(map(self.lexicon.__getitem__, part.values.tolist()))
            for start, end in pairwise(part.starts.tolist()):
                yield tuple(words[start:end])

    def parts(self) -> Iterator[Self]:
        """All captions in a row, at most `PART` at a time."""
        return (self.part(slice(n, n + PART)) for n in range(0, len(self), PART))

    def part(self, rows: slice) -> Self:
        """Captions in a row."""
        starts = self.starts[rows.start : rows.stop + 1]
        values = self.values[starts[0] : starts[-1]]
        return replace(self, values=values, starts=starts - starts[0])

    def counts(self) -> Counter[Word]:
        """How often each word occurs."""
        counts = np.zeros(len(self.lexicon), np.int64)
        for part in self.parts():
            counts += np.bincount(part.values, minlength=len(counts))
        found = Counter[Word]()
        for word, n in zip(self.lexicon, counts.tolist(), strict=True):
            found[word] += n
        return +found


def offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Start offsets of consecutive pieces, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
