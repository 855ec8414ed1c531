"""Attention maps of decoded captions, per layer and head.

B images with one caption of T words each, M maps (layers x H heads, or one), L context vectors on a
grid of (h, w).
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from captioning.backbones.context import ContextSet, as_maps
from captioning.decoding.caption import GeneratedCaption
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, EOS, PAD


@torch.no_grad()
def caption_maps(model: Captioner, context: ContextSet, tokens: Sequence[int]) -> dict[str, Tensor]:
    """Maps `[T, h, w]` on the CPU for the words of one image's caption, without EOS, by name.

    `inter 1 5` is the fifth head of the first layer; maps of models without `heads` are numbered.
    """
    read = torch.tensor([[[BOS, *tokens[:-1]]]], device=context.vectors.device)  # [1, 1, T]
    heads = model.heads
    by_name = {}
    for name, maps in model.attention_maps(context, read).items():
        for m, alpha in enumerate(maps[0, 0].cpu().unbind(1)):
            number = f" {m + 1}" if heads is None else f" {m // heads + 1} {m % heads + 1}"
            by_name[name + number if maps.shape[-2] > 1 else name] = as_maps(alpha, context.grid)
    return by_name


def word_maps(maps: Tensor, numbers: Sequence[int]) -> Tensor:
    """Maps of words `[W, ...]`, the means of those of their tokens `[T, ...]` (D).

    `numbers` are T ascending ones, of each token's word (`Vocabulary.word_numbers`).

    Example:
        Three tokens over L = 2 vectors, of which the first two are one word:

        >>> word_maps(torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]), [0, 0, 1])
        tensor([[0.7500, 0.2500],
                [0.0000, 1.0000]])
    """
    if len({*numbers}) == len(numbers):
        return maps
    word = torch.tensor(numbers, device=maps.device)
    sums = maps.new_zeros(numbers[-1] + 1, *maps.shape[1:]).index_add_(0, word, maps)
    return sums / word.bincount().view(-1, *[1] * (maps.dim() - 1))


def reference_maps(
    attention: Tensor, tokens: Tensor, word_numbers: Callable[[Iterable[int]], list[int]]
) -> Tensor:
    """Maps `[B, N, C, L]` of the tokens `[B, N, C]` as maps of words, the n-th word's at n.

    `word_numbers` is that of a vocabulary.
    """
    merged = torch.zeros_like(attention)
    rows = zip(
        merged.flatten(0, 1), attention.flatten(0, 1), tokens.flatten(0, 1).tolist(), strict=True
    )
    for own, maps, ids in rows:
        numbers = word_numbers(i for i in ids if i != PAD)
        words = word_maps(maps[: len(numbers)], numbers)
        own[: len(words)] = words
    return merged


def all_maps(
    model: Captioner | None,
    context: ContextSet,
    caption: GeneratedCaption,
    numbers: Sequence[int] | None = None,
) -> dict[str, np.ndarray]:
    """All attention maps of a caption, float32 `[T, h, w]` by name; empty without attention.

    With `numbers` they are those of words, see `word_maps`.

    First `mean`, the attention during decoding, then `attended` if hard attention took locations,
    then the `caption_maps` if there are several. `model` is None for an ensemble, which has no
    `caption_maps`. In a grid of one row, whose vectors have no places, maps are of the unmasked
    ones alone.
    """
    if caption.attention is None:
        return {}
    words = [token for token in caption.tokens if token != EOS]
    decoded = {"mean": caption.attention, "attended": caption.attended}
    vectors = context.vectors.shape[1]  # of a sentence alone, which was padded among longer ones
    chosen = {
        name: as_maps(m[: len(words), :vectors], context.grid)
        for name, m in decoded.items()
        if m is not None
    }
    layers = caption_maps(model, context, words) if model is not None and words else {}
    if len(layers) > 1:
        chosen |= layers
    if context.mask is not None and context.grid[0] == 1:
        chosen = {name: maps[..., context.mask[0].to(maps.device)] for name, maps in chosen.items()}
    if numbers is not None:
        chosen = {name: word_maps(maps, numbers) for name, maps in chosen.items()}
    return {name: maps.float().numpy() for name, maps in chosen.items()}
