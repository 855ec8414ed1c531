"""Filters of the words that may come next.

B images, N hypotheses per image, V words, T tokens so far. A filter is any function of `log_probs`
`[B, N, V]` and `history` `[B, N, T]`, the ids that each hypothesis has generated (without BOS; PAD
after its end), that returns log-probabilities `[B, N, V]` with minus infinity at forbidden words.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from captioning.config.types import validated_class
from captioning.decoding.ranking import BOUNDS
from captioning.tokens import EOS

Words = Annotated[int, Interval(**BOUNDS["min_length"])]
Ngram = Annotated[int, Interval(**BOUNDS["no_repeat_ngram"])]
Filter = Callable[[Tensor, Tensor], Tensor]


@validated_class
class Filters:
    """The usual filters, combined. If they forbid every word, the caption ends."""

    min_length: Words = 0  # the smallest number of words, EOS not counted
    no_repeat_ngram: Ngram = 0  # no sequence of so many words occurs twice; 0 allows all
    no_word_twice: bool = False  # no word directly follows itself
    forbidden: Sequence[int] = ()  # words that no caption contains
    prefix: Sequence[int] = ()  # words that every caption begins with; they count in its score
    no_bad_ending: Sequence[int] = ()  # words that no caption ends with

    def __call__(self, log_probs: Tensor, history: Tensor) -> Tensor:
        length = history.shape[-1]
        if length < len(self.prefix):
            only = torch.full_like(log_probs, -torch.inf)
            only[..., self.prefix[length]] = log_probs[..., self.prefix[length]]
            return only
        if length < self.min_length:
            log_probs = mask_tokens(log_probs, [EOS])
        if self.no_bad_ending and length:
            bad = torch.isin(history[..., -1:], on_device(self.no_bad_ending, history.device))
            log_probs = torch.where(bad, mask_tokens(log_probs, [EOS]), log_probs)
        if self.forbidden:
            log_probs = mask_tokens(log_probs, self.forbidden)
        if self.no_word_twice:
            log_probs = _no_repeated_ngram(log_probs, history[..., -1:], 1)
        if self.no_repeat_ngram:
            log_probs = _no_repeated_ngram(log_probs, history, self.no_repeat_ngram)
        return log_probs


def mask_tokens(log_probs: Tensor, words: Sequence[int]) -> Tensor:
    """Forbid the ids `words`."""
    return log_probs.index_fill(-1, on_device(words, log_probs.device), -torch.inf)


def on_device(words: Sequence[int], device: torch.device) -> Tensor:
    """Ids as a tensor; the copy does not wait for the device, as indexing by a list would."""
    return torch.tensor(words, dtype=torch.long).to(device, non_blocking=True)


def _no_repeated_ngram(log_probs: Tensor, history: Tensor, n: int) -> Tensor:
    """Forbid every word that would repeat an n-gram of `history`."""
    length, v = history.shape[-1], log_probs.shape[-1]
    if length < n:
        return log_probs
    ngrams = history.unfold(-1, n, 1)  # [B, N, T - n + 1, n]
    begun = (ngrams[..., :-1] == history[..., None, length - n + 1 :]).all(-1)
    ending = ngrams[..., -1].masked_fill(~begun, v)  # an extra column for those that have not begun
    forbidden = log_probs.new_zeros(*log_probs.shape[:-1], v + 1, dtype=torch.bool)
    return log_probs.masked_fill(forbidden.scatter_(-1, ending, True)[..., :v], -torch.inf)
