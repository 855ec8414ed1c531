"""Every map of attention behind a caption that has been decoded.

T words, M maps (layers x heads, or one), L context vectors on a grid of (h, w).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.protocol import Captioner
from captioning.tokens import BOS


@torch.no_grad()
def caption_maps(model: Captioner, context: ContextSet, tokens: Sequence[int]) -> dict[str, Tensor]:
    """The maps `[T, h, w]` on the CPU, of the steps that predicted the words, by names such as `inter 5`.

    Args:
        model: whose `attention_maps` they are.
        context: of one image.
        tokens: the T words, at least one, without BOS and EOS.
    """
    read = torch.tensor([[[BOS, *tokens[:-1]]]], device=context.vectors.device)  # [1, 1, T]
    return {
        f"{name} {number}" if maps.shape[-2] > 1 else name: each.unflatten(1, context.grid)
        for name, maps in model.attention_maps(context, read).items()
        for number, each in enumerate(maps[0, 0].cpu().unbind(dim=1), start=1)
    }
