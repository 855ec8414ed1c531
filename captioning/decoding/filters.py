"""Filters: which words may follow those of a caption.

A filter is told the words of one hypothesis, whatever its ids are: words (`Tokens`) or pieces of
words (`Pieces`). `experiments/onnx` copies this module beside its graphs, so that it imports
NumPy, the standard library and modules that are copied too.

K hypotheses of up to T ids, V ids in all.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import Annotated, Any, Protocol, Self, runtime_checkable

import numpy as np

from captioning.tokens import BAD_ENDINGS, EOS, NAMES

Word = str | int | float
"""The text of a word. Without a vocabulary it is the word's id."""
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class OfWords:
    """Marks a setting whose value is a list of words."""

    known: bool


Words = Annotated[Sequence[Word], OfWords(known=False)]
"""Words. Those that a vocabulary lacks are ignored, since no caption has them."""
KnownWords = Annotated[Sequence[Word], OfWords(known=True)]
"""Words that captions must have: a text of several is split, and unknown ones are refused."""


def kind_of_words(hint: object) -> OfWords | None:
    """How a setting of this type is a list of words; None if it is none."""
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, OfWords):
            return note
    return None


@dataclass(frozen=True)
class Bounds:
    """The least and the largest value of an integer, for pydantic and its JSON Schema."""

    ge: int
    le: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(source), "ge": self.ge, "le": self.le}


class Tokens:
    """Ids that are words, with the V `names` of a vocabulary; without names each is its own name.

    The language is the two letters of ISO 639-1. For pieces of words, `within` are the ids that do
    not begin a word.
    """

    within: Sequence[int] = ()

    def __init__(self, names: Sequence[str] = (), language: str = ""):
        self.names, self.language = names, language
        self._ids: dict[Word, list[int]] = {}
        for i, name in enumerate(names):
            if i >= len(NAMES) and name:
                self._ids.setdefault(name, []).append(i)

    def ids(self, words: Iterable[Word]) -> list[int]:
        """The ids of those words that have some."""
        if not self.names:
            return [word for word in words if isinstance(word, int)]
        return [i for word in words for i in self._ids.get(word, ())]

    def check_known(self, words: Iterable[Word]) -> None:
        """Raise ValueError for a word that the vocabulary lacks."""
        for word in words:
            if self.names and word not in self._ids:
                raise ValueError(f"the vocabulary does not have the word {word!r:.200}")

    def encode(self, words: Sequence[Word]) -> list[int]:
        """The ids of a caption that begins with the words, which are known."""
        self.check_known(words)
        return self.ids(words)

    def following(
        self, rule: "Filter", ids: Sequence[int], left: float
    ) -> tuple[list[int], list[int]]:
        """The ids that alone may follow `ids`, empty for all, and the ids that may not follow."""
        words: Sequence[Word] = [self.names[i] for i in ids] if self.names else ids
        missing = rule.missing(words)
        only = self.ids(missing) if len(missing) >= left else []
        never = self.ids(rule.refused(words, left == 1))
        if missing or not rule.may_end(words):
            never.append(EOS)
        return only, never


class Pieces(Tokens):
    """Ids that are pieces of words.

    A piece is refused if a word becomes a refused one with it, even though further pieces could
    make another word of it (D). At the last step only a single piece can complete a missing word
    (D). Characters of several pieces, as of tokenizers of bytes, are not recognised.

    Args:
        pieces: `[V]` texts, with a blank before a word; empty for special tokens.
        language: of the words.
        encode: from words to their ids, for a filter's `prefix`.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        language: str = "",
        encode: Callable[[Sequence[str]], list[int]] | None = None,
    ):
        super().__init__(pieces, language)
        self.within = [i for i, text in enumerate(pieces) if text and not text[0].isspace()]
        self._blank = [i for i, text in enumerate(pieces) if text.isspace()]
        self._encode = encode

    def check_known(self, words: Iterable[Word]) -> None:
        """Pass, since the pieces at hand may make any word."""

    def encode(self, words: Sequence[Word]) -> list[int]:
        if not words:
            return []
        if self._encode is None:
            raise ValueError("prefix cannot be divided into pieces without the tokenizer")
        return self._encode([str(word) for word in words])

    def following(
        self, rule: "Filter", ids: Sequence[int], left: float
    ) -> tuple[list[int], list[int]]:
        text = "".join(self.names[i] for i in ids)
        words, between, last = text.split(), not text or text[-1].isspace(), left == 1
        missing = rule.missing(words)
        only = self._beginning(missing, between) if last and len(missing) == 1 else []
        never = self._beginning(rule.refused(words, last), between)
        if missing or not rule.may_end(words):
            never += [EOS, *self._blank] if last else [EOS]
        if between:
            return only, never
        *before, begun = words
        never += self._completing(begun, rule.refused(before, last))
        if last and (lacking := rule.missing(before)):  # without the word that may go on
            if not missing:
                never += self.within
            elif len(lacking) == 1:
                only += self._completing(begun, lacking)
        return only, never

    def _beginning(self, words: Iterable[Word], between: bool) -> list[int]:
        """The pieces that are whole words after a complete word, or after a blank if `between`."""
        texts = [str(word) for word in words]
        ids = self.ids(f" {text}" for text in texts)
        # some tokenizers write no blank before the first word
        return ids + self.ids(texts) if between else ids

    def _completing(self, begun: str, words: Iterable[Word]) -> list[int]:
        """The pieces that make one of the words of the `begun` one."""
        texts = [str(word) for word in words]
        return self.ids(text.removeprefix(begun) for text in texts if text.startswith(begun))


class Filter:
    """Which words may follow those of a hypothesis: the base of the usual filters and of your own.

    It is asked at every step. If it leaves nothing, the caption ends there.

    Attributes:
        prefix: words that every caption begins with.
        tokens: what the ids are, set by `over`.
    """

    prefix: Sequence[Word] = ()
    tokens = Tokens()

    @property
    def idle(self) -> bool:
        """True if it allows everything; then no time is lost."""
        return False

    def refused(self, words: Sequence[Word], last: bool) -> Iterable[Word]:
        """The words that may not come next. After the `last` word a caption is cut."""
        return ()

    def missing(self, words: Sequence[Word]) -> Collection[Word]:
        """The words that must still come before the caption ends or is cut."""
        return ()

    def may_end(self, words: Sequence[Word]) -> bool:
        """Whether a caption may consist of these words."""
        return True

    def over(self, tokens: Tokens) -> Self:
        """The same filter for these ids; ValueError if it cannot filter them."""
        tokens.encode(self.prefix)
        tokens.check_known(self.missing(()))
        other = copy(self)
        vars(other)["tokens"] = tokens
        return other

    def allowed(self, hypotheses: Sequence[Sequence[int]], size: int, left: float) -> Mask:
        """`[K, V]`, which ids may follow each hypothesis.

        Args:
            hypotheses: the ids of each, without BOS.
            size: V.
            left: tokens until a caption is cut, this one included.
        """
        first = self.tokens.encode(self.prefix)
        mask = np.ones((len(hypotheses), size), dtype=bool)
        for row, ids in zip(mask, hypotheses, strict=True):
            if len(ids) < len(first):
                row[:] = False
                row[first[len(ids)]] = True
                continue
            only, never = self.tokens.following(self, ids, left)
            if only:
                row[:] = False
                row[only] = True
            row[never] = False
            if first and len(ids) == len(first):
                row[list(self.tokens.within)] = False  # the last word of the prefix is whole
        return mask


@dataclass(frozen=True)
class Filters(Filter):
    """The usual filters, combined."""

    min_length: Annotated[int, Bounds(0, 10_000), "shortest caption, in words"] = 0
    no_repeat_ngram: Annotated[
        int,
        Bounds(0, 10_000),
        "no repeated word sequence: of this length, with 2 no pair of words; 0 allows all",
    ] = 0
    no_word_twice: Annotated[bool, "no word twice in a row"] = False
    forbidden: Annotated[Words, "forbidden words"] = ()
    prefix: Annotated[KnownWords, "first words: every caption begins with them"] = ()
    no_bad_ending: Annotated[
        bool, 'complete endings: no caption ends with "a", "of" and the like'
    ] = False
    required: Annotated[KnownWords, "required words: no caption ends without them"] = ()

    @property
    def idle(self) -> bool:
        return not any(getattr(self, each.name) for each in fields(self))

    def over(self, tokens: Tokens) -> Self:
        if self.no_bad_ending and tokens.language not in BAD_ENDINGS:
            raise ValueError(
                f"no_bad_ending knows the endings of {', '.join(BAD_ENDINGS)} alone, and these "
                f"captions are in language={tokens.language}: set it to false"
            )
        return super().over(tokens)

    @property
    def _bad_endings(self) -> Collection[Word]:
        return BAD_ENDINGS.get(self.tokens.language, ()) if self.no_bad_ending else ()

    def refused(self, words: Sequence[Word], last: bool) -> Iterable[Word]:
        yield from self.forbidden
        if self.no_word_twice:
            yield from words[-1:]
        if n := self.no_repeat_ngram:
            begun = len(words) - n + 1
            for i in range(begun):
                if words[i : i + n - 1] == words[begun:]:
                    yield words[i + n - 1]
        if last:
            yield from self._bad_endings

    def missing(self, words: Sequence[Word]) -> Collection[Word]:
        return {*self.required} - {*words}

    def may_end(self, words: Sequence[Word]) -> bool:
        is_bad = len(words) > 0 and words[-1] in self._bad_endings
        return len(words) >= self.min_length and not is_bad


@runtime_checkable
class FilterFunction(Protocol):
    """A function of ids as a filter, or a class of one's own with `__call__`.

    It gets log-probabilities `[B, N, V]` of B images with N hypotheses and the ids `[B, N, T]` so
    far, without BOS and with PAD after an end. It returns log-probabilities with minus infinity at
    ids that may not follow.
    """

    def __call__(self, log_probs: Any, history: Any) -> Any: ...

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        # parts of this package are called with something else
        return hasattr(other, "__call__") and not other.__module__.startswith("captioning.")  # noqa: B004


AnyFilter = Filter | FilterFunction
