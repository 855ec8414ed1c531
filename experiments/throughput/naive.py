"""Naive variants: the same network and weights as an ordinary implementation calls them.

B images, N captions per image, K beams, C prediction steps, t tokens so far, V words, L context
vectors.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.decoding import FORBIDDEN, GeneratedCaption
from captioning.decoding.steps import log_probs
from captioning.models.protocol import Captioner, CaptionOutput, DecodeState, Step
from captioning.tokens import BOS, EOS


def repeated(context: ContextSet, n: int) -> ContextSet:
    """Every image n times, `[B n, L, D]`, as a tensor's rows."""
    mask = None if context.mask is None else context.mask.repeat_interleave(n, dim=0)
    return ContextSet(context.vectors.repeat_interleave(n, dim=0), context.grid, mask)


class OnePerCaption(Captioner):
    """Captioner for training that repeats an image for each of its captions and projects padding on
    V words too.

    Loss and gradient are those of the model itself (without dropout), so that only time and memory
    differ.
    """

    def __init__(self, model: Captioner) -> None:
        super().__init__()
        self.model = model
        self.parallel = model.parallel

    def forward(
        self, context: ContextSet, tokens: Tensor, need_weights: bool = False, **path: Any
    ) -> CaptionOutput:
        """As `Captioner`, but `hidden` holds logits, `[B, N, C, V]`."""
        b, n, c = tokens.shape
        rows = {  # `[B]` to `[B N]`, and `[B, N, C]` to `[B N, 1, C]`
            name: value.repeat_interleave(n) if value.ndim == 1 else value.flatten(0, 1)[:, None]
            for name, value in path.items()
        }
        output = self.model(
            repeated(context, n), tokens.flatten(0, 1)[:, None], need_weights, **rows
        )
        attention, policy = output.attention, output.policy
        if attention is not None:
            attention = attention.view(b, n, c, -1)
        if policy is not None:
            per_step = {
                "log_prob": policy.log_prob.view(b, n, c),
                "entropy": policy.entropy.view(b, n, c),
            }
            policy = replace(policy, sampled=path["sampled"], **per_step)
        return CaptionOutput(self.model.readout(output.hidden).view(b, n, c, -1), attention, policy)

    def readout(self, hidden: Tensor) -> Tensor:  # the forward pass gives logits already
        return hidden

    def start(self, context: ContextSet, n: int) -> DecodeState:
        return self.model.start(repeated(context, n), 1)

    def step(self, tokens: Tensor, state: DecodeState) -> Step:
        # hypotheses are images here, and keep their order
        step = self.model.step(tokens.flatten()[:, None], state)
        return replace(step, logits=step.logits.view(*tokens.shape, -1), attention=None)


@torch.no_grad()
def naive_beam(
    model: Captioner,
    image: ContextSet,
    width: int,
    max_length: int,
    forbidden: Sequence[int] = FORBIDDEN,
) -> GeneratedCaption:
    """Caption of `beam_search` with early stopping, without length penalty, for one image, by
    lists, without a state.

    At each step the image, once for each of the K beams, and the whole of their t tokens go through
    the parallel forward pass.
    """
    device = image.vectors.device
    unfinished: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, max_length + 1):
        # [K, 1, t]
        tokens = torch.tensor([[[BOS, *words]] for _, words in unfinished], device=device)
        hidden = model(repeated(image, len(unfinished)), tokens).hidden[:, 0, -1]
        so_far = torch.tensor(
            [score for score, _ in unfinished], dtype=torch.float64, device=device
        )
        scores = so_far[:, None] + log_probs(model.readout(hidden), forbidden)  # [K, V]
        top = scores.flatten().topk(min(2 * width, scores.numel()))
        ranked = [
            (score, [*unfinished[choice // scores.shape[1]][1], choice % scores.shape[1]])
            for score, choice in zip(top.values.tolist(), top.indices.tolist(), strict=True)
            if score > -float("inf")
        ]
        ended += [(score, words) for score, words in ranked[:width] if words[-1] == EOS]
        unfinished = [(score, words) for score, words in ranked if words[-1] != EOS][:width]
        if not unfinished or (len(ended) >= width and length < max_length):
            unfinished = []
            break
    score, words = max(ended + unfinished)
    return GeneratedCaption(words, score, None)
