"""Maps of transformers that follow attention through all layers, beside the weights of one of them.

- Attention rollout: Abnar and Zuidema, "Quantifying Attention Flow in Transformers", 2020.
- Gradient x attention: Chefer, Gur, Wolf, "Generic Attention-model Explainability for Interpreting Bi-Modal and
  Encoder-Decoder Transformers", 2021, whose numbers of equations are given.

B images with a caption each of T positions, L context vectors, of which the encoder makes K; V words.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.protocol import LayeredCaptioner, LayerWeights

AT_ONCE = 8
"""Words whose gradients are in memory at once: for each there is one of every weight of the encoder."""


@torch.no_grad()
def rollout(weights: LayerWeights) -> Tensor:
    """The share of each context vector in what each position is made of, `[B, T, L]`, rows of sum one.

    Every layer passes on half of what it gets and half of what it attends to, heads averaged (section 3 of the paper;
    between decoder and encoder likewise (D)). What a position has of words is left out.
    """
    layers = weights.encoder, weights.text, weights.inter
    encoder, text, inter = ([alpha.mean(dim=1) for alpha in part] for part in layers)
    image = _of_image(encoder, inter[0], lambda before, added: (before + added) / 2)
    found = torch.zeros_like(inter[0])
    for words, vectors in zip(text, inter, strict=True):
        found = (found + words @ found) / 2
        found = (found + vectors @ image) / 2
    return weights.shares(found / found.sum(dim=-1, keepdim=True))


def gradient(model: LayeredCaptioner, context: ContextSet, tokens: Tensor, step: Tensor, word: Tensor) -> Tensor:
    """How much each context vector speaks for one word of each caption, `[B, L]`, rows of sum one, or of zeros.

    Weights count by what the word's logit gains from them, A = mean over heads of max(0, dy/dA * A) (Eq. 5), and are
    followed through all layers (Eq. 6, 7, and 8 and 9 for the image). (D) Eq. 10 without its factor of words: what the
    words before have found comes by the self-attention of later layers.

    Args:
        model: evaluating.
        context: the images.
        tokens: `[B, T]`, begin with BOS.
        step: `[B]`, the position that predicts the word.
        word: `[B]`.
    """
    parts = []
    for some in torch.arange(len(tokens), device=tokens.device).split(AT_ONCE):
        mask = None if context.mask is None else context.mask[some]
        part = replace(context, vectors=context.vectors[some], mask=mask)
        parts.append(_gradient(model, part, tokens[some], step[some], word[some]))
    return torch.cat(parts)


def _gradient(model: LayeredCaptioner, context: ContextSet, tokens: Tensor, step: Tensor, word: Tensor) -> Tensor:
    rows = torch.arange(len(tokens), device=tokens.device)
    with torch.enable_grad():
        vectors = context.vectors.detach().requires_grad_()
        weights = model.layer_weights(replace(context, vectors=vectors), tokens)
        alphas = [*weights.encoder, *weights.text, *weights.inter]
        slopes = torch.autograd.grad(weights.logits[rows, step, word].sum(), alphas, materialize_grads=True)
    gains = [(slope * alpha.detach()).clamp(min=0).mean(dim=1) for slope, alpha in zip(slopes, alphas, strict=True)]
    layers = len(weights.inter)
    encoder, text, inter = gains[: -2 * layers], gains[-2 * layers : -layers], gains[-layers:]
    image = _of_image(encoder, inter[0], torch.add)
    own = torch.eye(image.shape[-1], dtype=image.dtype, device=image.device)
    image = own + _to_one(image - own)  # Eq. 8, 9
    found = torch.zeros_like(inter[0])
    for words, places in zip(text, inter, strict=True):
        found = found + words @ found
        found = found + places @ image
    return weights.shares(_to_one(found[rows, step]))


def _of_image(encoder: Iterable[Tensor], like: Tensor, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """What the K vectors behind the encoder have of those before it, `[K, K]` or `[B, K, K]`."""
    image = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    for vectors in encoder:
        image = join(image, vectors @ image)
    return image


def _to_one(rows: Tensor) -> Tensor:
    return rows / rows.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
