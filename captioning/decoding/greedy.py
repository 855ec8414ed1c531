"""Greedy decoding.

B images, V words, L context vectors.
"""

from collections.abc import Sequence

import torch

from captioning.backbones.context import ContextSet
from captioning.borders.bounds import Length, bounded
from captioning.decoding.caption import FORBIDDEN, Caption
from captioning.decoding.filters import Filter
from captioning.decoding.log_probs import log_probs
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, EOS, PAD


@bounded
@torch.no_grad()
def greedy(
    model: Captioner,
    context: ContextSet,
    max_length: Length = 15,
    forbidden: Sequence[int] = FORBIDDEN,
    filters: Filter | None = None,
) -> list[Caption]:
    """The likeliest word at every step.

    Args:
        model: anything with `start` and `step`.
        context: B images.
        max_length: the largest number of generated tokens, EOS included.
        forbidden: token ids that are never generated.
        filters: what may come next, given what came before (`captioning.decoding.filters`).

    Returns:
        B captions; the score is the sum of log-probabilities, EOS included.

    Raises:
        ValueError: a number that is not allowed.
    """
    b, device = context.vectors.shape[0], context.vectors.device
    state = model.start(context, 1)
    token = torch.full((b, 1), BOS, device=device)
    ended = torch.zeros(b, dtype=torch.bool, device=device)
    score = torch.zeros(b, dtype=torch.float64, device=device)
    lengths = torch.zeros(b, dtype=torch.long, device=device)
    tokens, maps = [torch.empty(b, 0, dtype=torch.long, device=device)], []
    for _ in range(max_length):
        step = model.step(token, state)
        state = step.state
        history = None if filters is None else torch.cat(tokens, dim=1)[:, None]
        best, token = log_probs(step.logits, forbidden, filters, history).max(dim=-1)
        token = token.masked_fill(ended[:, None], PAD)
        score += best.squeeze(1).masked_fill(ended, 0.0)
        lengths += ~ended
        tokens.append(token)
        if step.attention is not None:
            maps.append(step.attention.squeeze(1))
        ended |= token.squeeze(1) == EOS
        if ended.all():
            break
    generated = torch.cat(tokens, dim=1).cpu()
    attention = torch.stack(maps, dim=1).cpu() if maps else None
    return [
        Caption(generated[i, :n].tolist(), float(score[i]), None if attention is None else attention[i, :n])
        for i, n in enumerate(lengths.tolist())
    ]
