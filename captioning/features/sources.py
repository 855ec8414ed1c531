"""Source sentences as inputs of `Words`: B sentences of at most S words each."""

from collections.abc import Sequence

import torch
from torch import Tensor

from captioning.backbones.base import Backbone
from captioning.backbones.words import Words
from captioning.data.example import Example, Splits
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.tokens import PAD


class Sources:
    """The source sentences of a split as ids."""

    pixels = False

    def __init__(self, examples: Sequence[Example], backbone: Words) -> None:
        vocabulary, most = Vocabulary(backbone.words), backbone.grid[1]
        self._ids = torch.full((len(examples), most), PAD)
        for row, sentence in zip(self._ids, _sentences(examples), strict=True):
            row[: len(sentence)] = torch.tensor(vocabulary.encode(sentence[:most]))

    def rows(self, indices: Sequence[int]) -> Tensor:
        """`[B, S]` int64, PAD after the end of a sentence."""
        return self._ids[list(indices)]


def learn_words(splits: Splits, backbone: Backbone) -> None:
    """Give a backbone of source words those of the training split, unless it has some from a
    checkpoint.
    """
    if isinstance(backbone, Words) and not backbone.words:
        sentences = _sentences(splits["train"])
        backbone.words = Vocabulary.from_captions(
            sentences, backbone.min_count, backbone.max_size
        ).words


def _sentences(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    if not all(example.source for example in examples):
        raise CaptioningError(
            "backbone=words reads source sentences, and this data set has none: set data=parallel"
        )
    return [example.source for example in examples]
