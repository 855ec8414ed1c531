"""Words of a source sentence as a context set: an embedding in place of a network, for translation.

B sentences of at most S words of D features.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from captioning.backbones.base import Backbone, FeatureStore
from captioning.backbones.context import ContextSet
from captioning.backbones.images import ImageTransform
from captioning.backbones.precomputed import FeatureOnlyBackbone
from captioning.config.types import Count, Length, Width, validated
from captioning.data.dataset import Inputs
from captioning.data.example import Example, Splits
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.tokens import NAMES, PAD


class Words(FeatureOnlyBackbone):
    """Embedded words as context: c_i = E_s x_i on a grid of (1, S).

    Bahdanau et al. 2015, appendix A.2.1, without the recurrent layers.

    The source words are learnt from the training split and saved
    with the weights. Weights are initialised at unit scale, N(0, 1) (D), and trained with the
    model.

    Args:
        max_size: largest source vocabulary, including the special tokens: rows of the embedding.
        min_count: rarer words become UNK.
        max_source: S; the rest of a longer sentence is cut off (D).
    """

    @validated
    def __init__(
        self,
        dim: Width = 512,
        max_size: Width = 10000,
        min_count: Count = 5,
        max_source: Length = 50,
    ) -> None:
        embedding = nn.Embedding(max_size, dim, padding_idx=PAD)
        super().__init__(
            "words", embedding, dim, (1, max_source), ImageTransform(1), trainable=True
        )
        self.max_size, self.min_count = max_size, min_count
        self.words: list[str] = []  # of the source vocabulary, without the special tokens

    def get_extra_state(self) -> Tensor:
        """The words as UTF-8: checkpoints of strangers hold tensors and plain values alone."""
        return torch.tensor(list(" ".join(self.words).encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        self.words = (
            bytes(state.byte().tolist())
            .decode(errors="replace")
            .split()[: self.max_size - len(NAMES)]
        )

    def valid_mask(self, inputs: Tensor) -> Tensor:
        """`[B, S]` bool, for ids `[B, S]`."""
        return inputs != PAD

    def context(self, features: Tensor) -> ContextSet:
        """The context set of ids `[B, S]`."""
        return ContextSet(self.network(features), self.grid, self.valid_mask(features))

    def prepare(self, splits: Splits) -> None:
        """Learn the words of the training split, unless a checkpoint has brought some."""
        if not self.words:
            sentences = _sentences(splits["train"])
            self.words = Vocabulary.from_captions(sentences, self.min_count, self.max_size).words

    def open_inputs(self, examples: Sequence[Example], store: FeatureStore, name: str) -> Inputs:
        vocabulary, most = Vocabulary(self.words), self.grid[1]
        ids = torch.full((len(examples), most), PAD)
        for row, sentence in zip(ids, _sentences(examples), strict=True):
            row[: len(sentence)] = torch.tensor(vocabulary.encode(sentence[:most]))
        return Sources(ids)


class Sources:
    """The source sentences of a split as ids `[R, S]`, PAD after the end of a sentence."""

    pixels = False

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids

    def rows(self, indices: Sequence[int]) -> Tensor:
        return self.ids[list(indices)]

    def fit_scale(self, backbone: Backbone) -> None:
        """Words keep the scale of their embedding."""


def _sentences(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    if not all(example.source for example in examples):
        raise CaptioningError(
            "backbone=words reads source sentences, and this data set has none: set data=parallel"
        )
    return [example.source for example in examples]
