"""Vocabulary of words and ids, built from the training captions and saved in the checkpoint.

V words, including the special tokens. Nothing here starts Java.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from annotated_types import Interval

from captioning.config.types import PositiveInt
from captioning.data.caption_words import CaptionWords
from captioning.data.words import ENGLISH_WORDS, Language
from captioning.errors import CaptioningError, did_you_mean
from captioning.tokens import EOS, NAMES, UNK

MinCount = PositiveInt
MaxSize = Annotated[int, Interval(gt=len(NAMES), le=1_000_000)]


class Vocabulary:
    """Immutable mapping between words and ids.

    Ids 0..3 are the special tokens of `captioning.tokens`.

    Captions are written as in `language`. Two vocabularies with the same words in the same order
    are equal. Ids of `captioning.data.subwords` are pieces of words.
    """

    unit = "words"
    pieces: Sequence[str] = ()
    tokenizer_ids: Sequence[int] = ()
    __slots__ = ("_ids", "_names", "language")

    def __init__(self, words: Sequence[str], language: Language = ENGLISH_WORDS):
        self._names, self.language = (*NAMES, *words), language
        self._ids = {name: i for i, name in enumerate(self._names)}
        if len(self._ids) < len(self._names):
            twice = [name for name, count in Counter(self._names).items() if count > 1]
            raise CaptioningError(
                f"words of a vocabulary must differ from each other and {NAMES}: {twice[:5]!s:.200}"
            )
        for name in NAMES:  # a caption with the literal word "<eos>" must not end there
            del self._ids[name]

    @classmethod
    def from_captions(
        cls, captions: Iterable[Sequence[str]], min_count: int = 5, max_size: int = 10000
    ) -> Self:
        """Keep the words that occur at least `min_count` times.

        By descending count, then alphabetically.

        Args:
            captions: the words of each training caption.
            min_count: rarer words become UNK.
            max_size: largest V, including the four special tokens: the rows of the models' output
                layer.
        """
        counts = CaptionWords.of(captions).counts()
        for name in NAMES:
            counts.pop(name, None)
        frequent = [word for word, count in counts.items() if count >= min_count]
        if not frequent:
            raise CaptioningError(
                f"none of the {len(counts)} different words of the training captions occurs "
                f"min_count={min_count} times (the most frequent: "
                f"{max(counts.values(), default=0)}); lower min_count or give more captions"
            )
        frequent.sort(key=lambda word: (-counts[word], word))
        return cls(frequent[: max_size - len(NAMES)])

    @property
    def saved(self) -> list[str] | str:
        """What a checkpoint keeps: the words, or the JSON text of a tokenizer."""
        return self.words

    @property
    def words(self) -> list[str]:
        """The words without the special tokens, in the order of their ids.

        `Vocabulary(v.words) == v`.
        """
        return list(self._names[len(NAMES) :])

    def shared(self, other: Self) -> int:
        """Return the number of words that are in both, special tokens apart."""
        return len({*self.words} & {*other.words})

    def __len__(self) -> int:
        return len(self._names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.saved == other.saved

    def __hash__(self) -> int:
        return hash(self._names)

    def unknown(self, captions: Iterable[Sequence[str]]) -> float:
        """The share of unknown words among those of all captions, 0 to 1."""
        counts = CaptionWords.of(captions).counts()
        unknown = sum(count for word, count in counts.items() if not self.knows(word))
        return unknown / max(1, counts.total())

    def knows(self, word: str) -> bool:
        """Whether no id of the word is UNK."""
        return word in self._ids

    def encode(self, words: Iterable[str]) -> list[int]:
        """Ids of `words`, UNK for unknown words; without BOS and EOS."""
        return [self._ids.get(word, UNK) for word in words]

    def encode_all(self, captions: Iterable[Sequence[str]]) -> CaptionWords[int]:
        """Ids of all captions, looked up when they are asked for."""
        numbered = CaptionWords.of(captions)
        return CaptionWords(numbered.values, numbered.starts, self.encode(numbered.lexicon))

    def decode(self, ids: Iterable[int]) -> str:
        """The caption of `ids`, written as in its language."""
        return self.language.join(self.words_of(ids))

    def words_of(self, ids: Iterable[int]) -> list[str]:
        """The words of `ids`, up to EOS and without special tokens."""
        words = []
        for i in map(int, ids):
            if i == EOS:
                break
            if i < 0:
                raise IndexError(f"token id {i} is negative")
            if i >= len(NAMES):
                words.append(self._names[i])
        return words

    def each_word(self, ids: Iterable[int]) -> list[str]:
        """The words of a caption's ids without EOS; empty for other special tokens."""
        return [self.decode([i]) for i in map(int, ids) if i != EOS]

    def word_numbers(self, ids: Iterable[int]) -> list[int]:
        """For each id of a caption without EOS, which of `each_word` it belongs to."""
        return list(range(sum(i != EOS for i in map(int, ids))))

    def words_in(self, text: str) -> Sequence[str]:
        """One known word, or the known words of a text such as Chinese without blanks."""
        if self.knows(text):
            return text.split() if self.pieces else [text]
        words = self.language.words_of(text) or [text]
        for word in words:
            if not self.knows(word):
                hint = did_you_mean(word, self.words)
                raise CaptioningError(f"the model does not know the word {word}.{hint}")
        return words
