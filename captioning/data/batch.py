"""The batch that the data module yields, and the request for one.

B images, N captions per image, T = C + 1 tokens (BOS, words, EOS), C prediction steps, W real
target positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from captioning.tokens import BOS, EOS, PAD


@dataclass
class Batch:
    """B images with up to N captions each.

    `inputs` are features `[B, L, D]` of a frozen backbone, missing vectors marked as in
    `captioning.backbones.context`, or images `[B, C, H, W]` uint8, with C = 3 colours, or
    C = 4 if photographs are padded; or ids of source words `[B, S]` int64, PAD after the last.
    """

    # `[B]`, the position of each image in its split, as tensors cannot hold the ids that are
    # strings
    index: Tensor
    inputs: Tensor
    tokens: Tensor  # `[B, N, T]`; an image with fewer captions has rows of PAD
    # `[W]`, the real target positions in `[B, N, C]` (a boolean mask would force a GPU sync)
    word_index: Tensor

    def to(self, device: torch.device | str) -> Self:  # called by Lightning
        # A copy from pinned memory does not wait for what a GPU still computes.
        return self._with_each(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))

    def pin_memory(self) -> Self:  # called by the data loader
        return self._with_each(Tensor.pin_memory)

    def _with_each(self, action: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, **{name: action(tensor) for name, tensor in vars(self).items()})

    @property
    def sources(self) -> Tensor:
        """Input tokens `[B, N, C]`: BOS w1 .. wn."""
        return self.tokens[..., :-1]

    @property
    def targets(self) -> Tensor:
        """Target tokens `[W]` at the real positions: w1 .. wn EOS."""
        return self.tokens[..., 1:].flatten()[self.word_index]

    @property
    def captions(self) -> Tensor:
        """Number of captions, a scalar tensor on the device; at most B * N."""
        return (self.tokens[..., 0] == BOS).sum()


def collate(
    index: Sequence[int], inputs: Tensor, captions: Sequence[Sequence[Sequence[int]]]
) -> Batch:
    """Build a batch from inputs `[B, ...]` and each image's captions.

    Captions are word ids without BOS and EOS.
    """
    length = 2 + max((len(words) for image in captions for words in image), default=0)
    tokens = torch.full((len(captions), max(1, *map(len, captions)), length), PAD)
    for b, image in enumerate(captions):
        for row, words in enumerate(image):
            tokens[b, row, : len(words) + 2] = torch.tensor([BOS, *words, EOS])
    word_index = (tokens[..., 1:] != PAD).flatten().nonzero().squeeze(1)
    return Batch(torch.tensor(index), inputs, tokens, word_index)


class BatchIndex(NamedTuple):
    """Positions of images, and the epoch, which determines the choice of captions."""

    epoch: int
    positions: list[int]
