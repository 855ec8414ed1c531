"""Scheduled sampling: a model learns to go on from its own words, as it must when it decodes.

Bengio et al., "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks", 2015; for transformers
Mihaylova and Martins, "Scheduled Sampling for Transformers", 2019.

B images, N captions per image, C prediction steps, V words.
"""

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.decoding import FORBIDDEN
from captioning.decoding.log_probs import log_probs
from captioning.decoding.sampling import draw_any
from captioning.models.protocol import Captioner
from captioning.tokens import EOS
from captioning.training.objectives.draws import Draws


@torch.no_grad()
def own_words(model: Captioner, context: ContextSet, sources: Tensor, probability: float, draws: Draws) -> Tensor:
    """The captions' inputs, `[B, N, C]`, with some words replaced by what the model would say in their place.

    Each word behind BOS is replaced with `probability`, by a draw from the model's own distribution. Of a model that
    reads its words in turn (Bengio et al.) this comes after the words before it, replaced ones among them. One that
    reads them all at once (`parallel`) is asked once, after the caption's own words: the first of two passes (Mihaylova
    and Martins). (D) What is drawn is a word, neither UNK nor the end.
    """
    uniform = draws.uniform(*sources.shape[1:], 2)
    replaced, height = uniform[..., 0] < probability, uniform[..., 1]
    replaced[..., 0] = False
    if getattr(model, "parallel", False):
        words = _draw(model.readout(model(context, sources).hidden)[..., :-1, :], height[..., 1:])
        return torch.cat([sources[..., :1], words], dim=-1).where(replaced, sources)
    state, token, read = model.start(context, sources.shape[1]), sources[..., 0], [sources[..., 0]]
    for t in range(1, sources.shape[-1]):
        step = model.step(token, state)
        state = step.state
        token = _draw(step.logits, height[..., t]).where(replaced[..., t], sources[..., t])
        read.append(token)
    return torch.stack(read, dim=-1)


def _draw(logits: Tensor, uniform: Tensor) -> Tensor:
    return draw_any(log_probs(logits, (*FORBIDDEN, EOS)), uniform)
