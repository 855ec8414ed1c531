"""Attention maps of decoded captions: per layer and head, and propagated through all layers.

- Attention rollout: Abnar and Zuidema, "Quantifying Attention Flow in Transformers", 2020.
- Gradient x attention: Chefer, Gur, Wolf, "Generic Attention-model Explainability for Interpreting
  Bi-Modal and Encoder-Decoder Transformers", 2021, whose numbers of equations are given.

B images with one caption of T words each, M maps (layers x H heads, or one), L context vectors on a
grid of (h, w), K vectors after the encoder, V words.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, repeat

import numpy as np
import torch
from torch import Tensor

from captioning.backbones.context import ContextSet, as_maps
from captioning.decoding.caption import GeneratedCaption
from captioning.models.protocol import Captioner, LayeredCaptioner, LayerWeights
from captioning.tokens import BOS, EOS, PAD

GRADIENTS_AT_ONCE = 8
"""Words whose gradients are in memory at once; each has a gradient of every encoder weight."""


@torch.no_grad()
def caption_maps(model: Captioner, context: ContextSet, tokens: Sequence[int]) -> dict[str, Tensor]:
    """Maps `[T, h, w]` on the CPU for the words of one image's caption, without EOS, by name.

    `inter 1 5` is the fifth head of the first layer; maps of models without `heads` are numbered.
    """
    read = torch.tensor([[[BOS, *tokens[:-1]]]], device=context.vectors.device)  # [1, 1, T]
    heads = model.heads
    by_name = {}
    for name, maps in model.attention_maps(context, read).items():
        for m, alpha in enumerate(maps[0, 0].cpu().unbind(dim=1)):
            number = f" {m + 1}" if heads is None else f" {m // heads + 1} {m % heads + 1}"
            key = name + number if maps.shape[-2] > 1 else name
            by_name[key] = as_maps(alpha, context.grid)
    return by_name


def word_maps(maps: Tensor, numbers: Sequence[int]) -> Tensor:
    """Maps of words `[W, ...]`, the means of those of their tokens `[T, ...]` (D).

    `numbers` are T ascending ones, of each token's word (`Vocabulary.word_numbers`).
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
    named = {
        name: as_maps(m[: len(words), :vectors], context.grid)
        for name, m in decoded.items()
        if m is not None
    }
    layers = caption_maps(model, context, words) if model is not None and words else {}
    chosen = named | (layers if len(layers) > 1 else {})
    if context.mask is not None and context.grid[0] == 1:
        chosen = {name: maps[..., context.mask[0].to(maps.device)] for name, maps in chosen.items()}
    if numbers is not None:
        chosen = {name: word_maps(maps, numbers) for name, maps in chosen.items()}
    return {name: maps.float().numpy() for name, maps in chosen.items()}


@torch.no_grad()
def rollout(weights: LayerWeights) -> Tensor:
    """Attention rollout: the share of each context vector in each position, `[B, T, L]`.

    Every layer passes on half of its input and half of the vectors attended to, heads averaged
    (section 3 of the paper; likewise between decoder and encoder (D)). The share of words is left
    out; rows sum to one.
    """
    layers = weights.encoder, weights.text, weights.inter
    encoder, text, inter = ([alpha.mean(dim=1) for alpha in part] for part in layers)
    images = _encoded(map(_on_image, encoder), inter[0], lambda before, added: (before + added) / 2)
    shares = torch.zeros_like(inter[0])
    for words, vectors, below in zip(text, inter, weights.below or repeat(-1), strict=False):
        shares = (shares + words @ shares) / 2
        shares = (shares + vectors @ images[below]) / 2
    return weights.to_input_grid(shares / shares.sum(dim=-1, keepdim=True))


def gradient(
    model: LayeredCaptioner, context: ContextSet, tokens: Tensor, step: Tensor, word: Tensor
) -> Tensor:
    """Gradient x attention: the relevance of each context vector to one word per caption, `[B, L]`.

    Captions `tokens` `[B, T]` begin with BOS; the position `step` `[B]` predicts the word `word`
    `[B]`. Rows sum to one or are zero. Weights are replaced by their contributions to the word's
    logit, A = mean over heads of max(0, dy/dA * A) (Eq. 5), and propagated through all layers (Eq.
    6, 7, and 8 and 9 for the image). (D) Eq. 10 without its factor for words: relevance of earlier
    words arrives by the self-attention of later layers.
    """
    parts = []
    for rows in torch.arange(len(tokens), device=tokens.device).split(GRADIENTS_AT_ONCE):
        mask = None if context.mask is None else context.mask[rows]
        part = replace(context, vectors=context.vectors[rows], mask=mask)
        parts.append(_gradient(model, part, tokens[rows], step[rows], word[rows]))
    return torch.cat(parts)


def _gradient(
    model: LayeredCaptioner, context: ContextSet, tokens: Tensor, step: Tensor, word: Tensor
) -> Tensor:
    rows = torch.arange(len(tokens), device=tokens.device)
    with torch.enable_grad():
        vectors = context.vectors.detach().requires_grad_()
        weights = model.layer_weights(replace(context, vectors=vectors), tokens)
        alphas = [*weights.encoder, *weights.text, *weights.inter]
        slopes = torch.autograd.grad(
            weights.logits[rows, step, word].sum(), alphas, materialize_grads=True
        )
    gains = [
        (slope * alpha.detach()).clamp(min=0).mean(dim=1)
        for slope, alpha in zip(slopes, alphas, strict=True)
    ]
    layers = len(weights.inter)
    encoder, text, inter = gains[: -2 * layers], gains[-2 * layers : -layers], gains[-layers:]
    own, *images = _encoded(map(_on_image, encoder), inter[0], torch.add)
    images = [own, *(own + _to_one(image - own) for image in images)]  # Eq. 8, 9
    relevance = torch.zeros_like(inter[0])
    for words, vectors, below in zip(text, inter, weights.below or repeat(-1), strict=False):
        relevance = relevance + words @ relevance
        relevance = relevance + vectors @ images[below]
    return weights.to_input_grid(_to_one(relevance[rows, step]))


def _encoded(
    encoder: Iterable[Tensor], like: Tensor, join: Callable[[Tensor, Tensor], Tensor]
) -> list[Tensor]:
    """The share of each encoder input in each vector after 0, 1, .. layers.

    `[K, K]` or `[B, K, K]`.
    """
    image = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    return list(
        accumulate(encoder, lambda before, vectors: join(before, vectors @ before), initial=image)
    )


def _on_image(encoder: Tensor) -> Tensor:
    """Weights without those on memory, `[.., K, K + M]` to `[.., K, K]`."""
    return encoder[..., : encoder.shape[-2]]


def _to_one(rows: Tensor) -> Tensor:
    return rows / rows.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
