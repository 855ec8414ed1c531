"""Words of a source sentence as a context set: an embedding in place of a network, for translation.

B sentences of at most S words of D features.
"""

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.backbones.images import ImageTransform
from captioning.backbones.precomputed import WithoutPhotographs
from captioning.config.types import Count, Length, Width, validated
from captioning.tokens import NAMES, PAD


class Words(WithoutPhotographs):
    """c_i = E_s x_i on a grid of (1, S): Bahdanau et al. 2015, appendix A.2.1, without the
    recurrent layers.

    The source words are learnt from the training split (`captioning.features.sources`) and saved
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
        """The words as UTF-8, because checkpoints of strangers hold nothing but tensors and plain
        values.
        """
        return torch.tensor(list(" ".join(self.words).encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        self.words = (
            bytes(state.byte().tolist())
            .decode(errors="replace")
            .split()[: self.max_size - len(NAMES)]
        )

    def present(self, inputs: Tensor) -> Tensor:
        """`[B, S]` bool, for ids `[B, S]`."""
        return inputs != PAD

    def context(self, features: Tensor) -> ContextSet:
        """The context set of ids `[B, S]`."""
        return ContextSet(self.network(features), self.grid, self.present(features))
