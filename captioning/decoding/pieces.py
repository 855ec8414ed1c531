"""The usual filters where a token is a piece of a word.

Names of dimensions as in `captioning.decoding.filters`; V pieces.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field, fields
from functools import cached_property

import torch
from torch import Tensor

from captioning.config.types import validated_class
from captioning.decoding.filters import Ngram, Words
from captioning.tokens import EOS


@validated_class
class PieceFilters:
    """Filters that count and compare whole words, which are text.

    A piece is forbidden if with it a word is a forbidden one, even though further pieces could make
    another word of it (D). Hypotheses are judged one by one on the CPU. Characters of several
    pieces, as of tokenizers of bytes, are not recognised.
    """

    pieces: Sequence[str] = field(repr=False)  # with a blank before a word; empty: special tokens
    min_length: Words = 0
    no_repeat_ngram: Ngram = 0
    no_word_twice: bool = False
    forbidden: Sequence[str] = ()
    prefix: Sequence[int] = ()  # pieces; the last word ends with the last of them
    no_bad_ending: Sequence[str] = ()

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        ids: dict[str, list[int]] = {}
        for i, text in enumerate(self.pieces):
            if text:
                ids.setdefault(text, []).append(i)
        return ids

    @cached_property
    def _within(self) -> list[int]:
        """The pieces that do not begin a word."""
        return [i for i, text in enumerate(self.pieces) if text and not text[0].isspace()]

    def __call__(self, log_probs: Tensor, history: Tensor) -> Tensor:
        length = history.shape[-1]
        # Without filters no time is lost.
        if not any(getattr(self, each.name) for each in fields(self) if each.name != "pieces"):
            return log_probs
        allowed = torch.ones(log_probs.shape, dtype=torch.bool)
        for row, ids in zip(allowed.flatten(0, 1), history.flatten(0, 1).tolist(), strict=True):
            if length < len(self.prefix):
                row[:] = False
                row[self.prefix[length]] = True
            else:
                row[list(self._forbidden(ids))] = False
        return log_probs.masked_fill(~allowed.to(log_probs.device), -torch.inf)

    def _forbidden(self, history: Sequence[int]) -> Iterator[int]:
        """The ids that may not follow those of a hypothesis."""
        text = "".join(self.pieces[i] for i in history)
        words, between = text.split(), not text or text[-1].isspace()
        if len(words) < self.min_length or (words and words[-1] in self.no_bad_ending):
            yield EOS
        for word in self._unwanted(words):
            yield from self._ids.get(f" {word}", ())
            if between:  # some tokenizers write no blank before the first
                yield from self._ids.get(word, ())
        if between:
            return
        if len(history) == len(self.prefix):
            yield from self._within
        *before, begun = words
        for word in self._unwanted(before):
            if word.startswith(begun):
                yield from self._ids.get(word.removeprefix(begun), ())

    def _unwanted(self, words: Sequence[str]) -> Iterator[str]:
        """The words that may not follow complete ones."""
        yield from self.forbidden
        if self.no_word_twice:
            yield from words[-1:]
        if n := self.no_repeat_ngram:
            for i in range(len(words) - n + 1):
                if words[i : i + n - 1] == words[len(words) - n + 1 :]:
                    yield words[i + n - 1]
