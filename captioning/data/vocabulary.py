"""Vocabulary of words and ids, built from the training captions and saved in the checkpoint.

V words, including the special tokens. Nothing here starts Java.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Self

from annotated_types import Ge, Interval
from pydantic import SkipValidation

from captioning.config.types import validated
from captioning.errors import CaptioningError, did_you_mean
from captioning.tokens import EOS, NAMES, UNK

# Accents and vowel signs without a composed form; otherwise Hindi words would be split. Those of living scripts are
# below 0x10000.
_MARKS = "".join(char for char in map(chr, range(0x10000)) if unicodedata.category(char).startswith("M"))
_LETTERS = rf"(?:[^\W_]++[{_MARKS}]*+)++"
_WORD = re.compile(f"{_LETTERS}(?:'{_LETTERS})*+")
OF_WORDS = ("prefix", "forbidden", "no_bad_ending")
"""Filter settings of a search that are lists of words."""


def split_words(text: str) -> tuple[str, ...]:
    """Split a caption into lower-case words of letters, digits and inner apostrophes, in any script.

    `"Two dogs' well-known T-shirts, don't ask!"` gives `two dogs well known t shirts don't ask`. Typographic
    apostrophes become plain ones, and letters with combining accents become composed letters.
    """
    composed = unicodedata.normalize("NFC", text.lower())
    return tuple(_WORD.findall(composed.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")))


class Vocabulary:
    """Immutable mapping between words and ids; ids 0..3 are the special tokens of `captioning.tokens`.

    Two vocabularies with the same words in the same order are equal.
    """

    __slots__ = ("_ids", "_names")

    def __init__(self, words: Sequence[str]) -> None:
        self._names = (*NAMES, *words)
        self._ids = {name: i for i, name in enumerate(self._names)}
        if len(self._ids) < len(self._names):
            twice = [name for name, count in Counter(self._names).items() if count > 1]
            raise CaptioningError(f"words of a vocabulary must differ from each other and {NAMES}: {twice[:5]!s:.200}")
        for name in NAMES:  # a caption with the literal word "<eos>" must not end there
            del self._ids[name]

    @classmethod
    @validated
    def from_captions(
        cls,
        captions: SkipValidation[Iterable[Sequence[str]]],
        min_count: Annotated[int, Ge(1)] = 5,
        max_size: Annotated[int, Interval(gt=len(NAMES), le=1_000_000)] = 10000,
    ) -> Self:
        """Keep the words that occur at least `min_count` times, by descending count, then alphabetically.

        Args:
            captions: the words of each training caption.
            min_count: rarer words become UNK.
            max_size: largest V, including the four special tokens: the rows of the models' output layer.
        """
        counts = Counter(chain.from_iterable(captions))
        for name in NAMES:
            counts.pop(name, None)
        frequent = [word for word, count in counts.items() if count >= min_count]
        if not frequent:
            raise CaptioningError(
                f"none of the {len(counts)} different words of the training captions occurs min_count={min_count} "
                f"times (the most frequent: {max(counts.values(), default=0)}); lower min_count or give more captions"
            )
        frequent.sort(key=lambda word: (-counts[word], word))
        return cls(frequent[: max_size - len(NAMES)])

    @property
    def words(self) -> list[str]:
        """The words without the special tokens, in the order of their ids: `Vocabulary(v.words) == v`."""
        return list(self._names[len(NAMES) :])

    def shared(self, other: Self) -> int:
        """Return the number of words that are in both, special tokens apart."""
        return len({*self.words} & {*other.words})

    def __len__(self) -> int:
        return len(self._names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._names == other._names

    def __hash__(self) -> int:
        return hash(self._names)

    def unknown(self, captions: Iterable[Sequence[str]]) -> float:
        """The share of unknown words among those of all captions, 0 to 1."""
        counts = Counter(chain.from_iterable(captions))
        return sum(count for word, count in counts.items() if word not in self._ids) / max(1, counts.total())

    def encode(self, words: Iterable[str]) -> list[int]:
        """Ids of `words`, UNK for unknown words; without BOS and EOS."""
        return [self._ids.get(word, UNK) for word in words]

    def decode(self, ids: Iterable[int]) -> str:
        """Join the words of `ids` by spaces, up to EOS and without special tokens."""
        words = []
        for i in map(int, ids):
            if i == EOS:
                break
            if i < 0:
                raise IndexError(f"token id {i} is negative")
            if i >= len(NAMES):
                words.append(self._names[i])
        return " ".join(words)

    def each_word(self, ids: Iterable[int]) -> list[str]:
        """The word of each id except EOS; empty for other special tokens."""
        return [self.decode([i]) for i in map(int, ids) if i != EOS]

    def with_ids(self, search: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the words in a search's filters by ids, without words that no caption can contain."""
        filters = search.get("filters")
        if not isinstance(filters, Mapping):
            return dict(search)
        for word in map(str, filters.get("prefix") or ()):
            if word not in self._ids:
                hint = did_you_mean(word, self.words)
                raise CaptioningError(f"decoding.filters.prefix: the model does not know the word {word}.{hint}")
        lists = {name: filters[name] for name in OF_WORDS if isinstance(filters.get(name), list | tuple)}
        ids = {name: [i for i in self.encode(map(str, words)) if i != UNK] for name, words in lists.items()}
        return {**search, "filters": {**filters, **ids}}
