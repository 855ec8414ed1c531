"""Words and their ids: made from the training captions once, then frozen and saved in the checkpoint.

V words in all, the special tokens included.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Annotated, Any, Self

from annotated_types import Ge, Interval
from pydantic import SkipValidation

from captioning.config.types import validated
from captioning.errors import CaptioningError
from captioning.tokens import EOS, NAMES, UNK


class Vocabulary:
    """An immutable two-way mapping: ids 0..3 are the special tokens of `captioning.tokens`, then come the words.

    Two vocabularies with the same words in the same order are equal.
    """

    __slots__ = ("_ids", "_names")

    _ids: dict[str, int]
    _names: tuple[str, ...]

    def __init__(self, words: Sequence[str]) -> None:
        """Number `words` in the order given, from 4 on, as a checkpoint's list of words is read back.

        Raises:
            CaptioningError: a word occurs twice or is the name of a special token.
        """
        names = (*NAMES, *words)
        ids = {name: i for i, name in enumerate(names)}
        if len(ids) < len(names):
            twice = [name for name, count in Counter(names).items() if count > 1]
            raise CaptioningError(
                f"a vocabulary holds each word once and no special token {', '.join(NAMES)}; repeated: "
                f"{twice[:5]!s:.200}"
            )
        for name in NAMES:  # a caption that really says "<eos>" must not end there
            del ids[name]
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_ids", ids)

    @classmethod
    @validated
    def from_captions(
        cls,
        captions: SkipValidation[Iterable[Sequence[str]]],
        min_count: Annotated[int, Ge(1)] = 5,
        max_size: Annotated[int, Interval(gt=len(NAMES), le=1_000_000)] = 10000,
    ) -> Self:
        """The words that occur at least `min_count` times, by falling count, equal counts in alphabetical order.

        Args:
            captions: the words of each training caption.
            min_count: rarer words become UNK.
            max_size: most entries V, the four special tokens included: the rows of the models' output layer.

        Raises:
            CaptioningError: no word is frequent enough.
        """
        counts = Counter(chain.from_iterable(captions))
        for name in NAMES:
            counts.pop(name, None)
        frequent = [word for word, count in counts.items() if count >= min_count]
        if not frequent:
            most = max(counts.values(), default=0)
            raise CaptioningError(
                f"none of the {len(counts)} different words of the training captions occurs min_count={min_count} "
                f"times (the most frequent: {most}); lower min_count or give more captions"
            )
        frequent.sort(key=lambda word: (-counts[word], word))
        return cls(frequent[: max_size - len(NAMES)])

    @property
    def words(self) -> list[str]:
        """The words without the special tokens, in the order of their ids: `Vocabulary(v.words) == v`."""
        return list(self._names[len(NAMES) :])

    def __len__(self) -> int:
        """V, the special tokens included."""
        return len(self._names)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Ids of `words`, UNK for those not in the vocabulary; neither BOS nor EOS is added."""
        return [self._ids.get(word, UNK) for word in words]

    def decode(self, ids: Iterable[int]) -> str:
        """The caption that `ids` spell, words joined by a space: stops at EOS and leaves out special tokens.

        Raises:
            IndexError: an id outside 0..V-1.
        """
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
        """The word of every id but EOS; a special token has none, and takes its place nevertheless."""
        return [self.decode([i]) for i in map(int, ids) if i != EOS]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a vocabulary is frozen: {name} cannot be set")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.words,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._names == other._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} entries, {', '.join(self.words[:3])}, ...)"
