"""Captions as numbers of their words, in which words are counted and encoded without a loop."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True)
class CaptionWords:
    """The words of R captions as numbers of a lexicon, which may have others too.

    Iterating over it gives the words of each caption.

    Attributes:
        lexicon: different words.
        numbers: `[W]` int32, the positions in `lexicon` of the words of all captions.
        starts: `[R + 1]` int64, where each caption begins in `numbers`; last its length.
    """

    lexicon: Sequence[str]
    numbers: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, captions: Iterable[Sequence[str]]) -> Self:
        """The words of captions; themselves if they are numbered already."""
        if isinstance(captions, cls):
            return captions
        lexicon: dict[str, int] = {}
        numbers, starts = array("i"), array("q", [0])
        for words in captions:
            numbers.extend([lexicon.setdefault(word, len(lexicon)) for word in words])
            starts.append(len(numbers))
        return cls(list(lexicon), np.array(numbers, np.int32), np.array(starts, np.int64))

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for start, end in zip(self.starts[:-1], self.starts[1:], strict=True):
            yield tuple([self.lexicon[number] for number in self.numbers[start:end].tolist()])

    @property
    def lengths(self) -> np.ndarray:
        """`[R]` words of each caption."""
        return np.diff(self.starts)

    def counts(self) -> Counter[str]:
        """How often each word occurs."""
        counts = np.bincount(self.numbers, minlength=len(self.lexicon)).tolist()
        return Counter({word: n for word, n in zip(self.lexicon, counts, strict=True) if n})


def offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Start offsets of consecutive pieces, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
