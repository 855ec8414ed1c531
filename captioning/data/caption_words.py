"""Captions as numbers of their words, in which words are counted and encoded without a loop."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

import numpy as np

Word = TypeVar("Word")
PART = 1 << 18
"""Captions whose words are looked at together, to bound the memory."""


@dataclass(frozen=True)
class CaptionWords(Generic[Word]):
    """The words of R captions, or their ids, as numbers of a lexicon, which may have others too.

    It is a sequence of the words of each caption.

    Attributes:
        lexicon: different words, or their ids in a vocabulary, in which several may be UNK.
        numbers: `[W]` int32, the positions in `lexicon` of the words of all captions.
        starts: `[R + 1]` int64, where each caption begins in `numbers`; last its length.
    """

    lexicon: Sequence[Word]
    numbers: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(
        cls, captions: Iterable[Sequence[Word]], lexicon: Iterable[Word] = ()
    ) -> "CaptionWords[Word]":
        """The words of captions; themselves if they are numbered already.

        Words that are not in `lexicon` are added at its end.
        """
        if isinstance(captions, cls):
            return captions
        known = {word: number for number, word in enumerate(lexicon)}
        numbers, starts = array("i"), array("q", [0])
        for words in captions:
            numbers.extend([known.setdefault(word, len(known)) for word in words])
            starts.append(len(numbers))
        return CaptionWords(list(known), np.asarray(numbers), np.asarray(starts))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, caption: int) -> tuple[Word, ...]:
        start, end = self.starts[caption : caption + 2].tolist()
        return tuple([self.lexicon[number] for number in self.numbers[start:end].tolist()])

    def __iter__(self) -> Iterator[tuple[Word, ...]]:
        return map(self.__getitem__, range(len(self)))

    def parts(self) -> Iterator[Self]:
        """All captions in a row, at most `PART` at a time."""
        return (self.part(slice(n, n + PART)) for n in range(0, len(self), PART))

    def part(self, rows: slice) -> Self:
        """Captions in a row."""
        starts = self.starts[rows.start : rows.stop + 1]
        numbers = self.numbers[starts[0] : starts[-1]]
        return replace(self, numbers=numbers, starts=starts - starts[0])

    @property
    def lengths(self) -> np.ndarray:
        """`[R]` words of each caption."""
        return np.diff(self.starts)

    def counts(self) -> Counter[Word]:
        """How often each word occurs."""
        counts = np.zeros(len(self.lexicon), np.int64)
        for part in self.parts():
            counts += np.bincount(part.numbers, minlength=len(counts))
        found = Counter[Word]()
        for word, n in zip(self.lexicon, counts.tolist(), strict=True):
            found[word] += n
        return +found


def offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Start offsets of consecutive pieces, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
