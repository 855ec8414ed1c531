"""Source sentences as inputs of `Words`.

B sentences of at most S words each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.backbones import Backbone
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
        self._ids = [torch.tensor(vocabulary.encode(sentence[:most])) for sentence in _sentences(examples)]

    def rows(self, indices: Sequence[int]) -> Tensor:
        """`[B, S]` int64, PAD after the end of a sentence."""
        return pad_sequence([self._ids[index] for index in indices], batch_first=True, padding_value=PAD)


def learn_words(splits: Splits, backbone: Backbone) -> None:
    """Give a backbone of source words those of the training split, unless it has some from a checkpoint."""
    if isinstance(backbone, Words) and not backbone.words:
        sentences = _sentences(splits["train"])
        backbone.words = Vocabulary.from_captions(sentences, backbone.min_count, backbone.max_size).words


def _sentences(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    if not all(example.source for example in examples):
        raise CaptioningError("backbone=words reads source sentences, and this data set has none: set data=parallel")
    return [example.source for example in examples]
