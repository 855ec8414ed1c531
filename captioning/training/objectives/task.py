"""What an objective may ask for beyond the model and the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.data.example import Example
from captioning.data.vocabulary import Vocabulary
from captioning.tokens import EOS


@dataclass(frozen=True, slots=True)
class Task:
    """What is learned from.

    Attributes:
        examples: the training images; `Draws.index` counts them.
        vocabulary: words of the ids.
    """

    examples: Sequence[Example]
    vocabulary: Vocabulary

    def references(self) -> list[list[list[int]]]:
        """Each image's captions as ids, those that are too long to be read among them; other words are UNK."""
        return [[self.vocabulary.encode(r.words) for r in example.references] for example in self.examples]

    def counts(self) -> Tensor:
        """How often each id is what follows in a caption, `[V]`: its words, UNK among them, and its end."""
        ids = [i for captions in self.references() for caption in captions for i in (*caption, EOS)]
        return torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=len(self.vocabulary))
