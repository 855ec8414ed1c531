"""Every map of attention behind a caption that has been decoded.

T words, M maps (layers x H heads, or one), L context vectors on a grid of (h, w).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.decoding.caption import Caption
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, EOS


@torch.no_grad()
def caption_maps(model: Captioner, context: ContextSet, tokens: Sequence[int]) -> dict[str, Tensor]:
    """The maps `[T, h, w]` on the CPU, of the steps that predicted the words, by names such as `inter 1 5`.

    That is of the first layer the fifth head; where a model does not say how many `heads` it has, maps are counted.

    Args:
        model: whose `attention_maps` they are.
        context: of one image.
        tokens: the T words, at least one, without BOS and EOS.
    """
    read = torch.tensor([[[BOS, *tokens[:-1]]]], device=context.vectors.device)  # [1, 1, T]
    heads = getattr(model, "heads", None)
    return {
        f"{name} {_number(m, heads)}" if maps.shape[-2] > 1 else name: each.unflatten(1, context.grid)
        for name, maps in model.attention_maps(context, read).items()
        for m, each in enumerate(maps[0, 0].cpu().unbind(dim=1))
    }


def _number(m: int, heads: int | None) -> str:
    return f"{m + 1}" if heads is None else f"{m // heads + 1} {m % heads + 1}"


def all_maps(model: Captioner | None, context: ContextSet, caption: Caption) -> dict[str, np.ndarray]:
    """All that is known of where the words came from, float32 `[T, h, w]` by name; nothing without attention.

    First `mean`, the attention that the caption was decoded with, `attended` where hard attention took a location, then
    those of `caption_maps` if there are several.

    Args:
        model: None for an ensemble, which has no maps of its own.
        context: of the image.
        caption: of it.
    """
    if caption.attention is None:
        return {}
    words = [token for token in caption.tokens if token != EOS]
    decoded = {"mean": caption.attention, "attended": caption.attended}
    found = {name: m[: len(words)].unflatten(1, context.grid) for name, m in decoded.items() if m is not None}
    every = caption_maps(model, context, words) if model is not None and words else {}
    return {name: maps.float().numpy() for name, maps in (found | (every if len(every) > 1 else {})).items()}
