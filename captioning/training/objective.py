"""Objectives: how a batch becomes a loss.

B images, N captions per image, C prediction steps, W real target positions, V words.

Every loss is a sum over the batch's captions; the Lightning module divides the gradient by the number of real words of
all processes and accumulated batches, so that N processes equal one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.outputs import Captioner


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of a batch.

    Attributes:
        total: what is minimised, a sum over captions.
        terms: detached sums to log per word; `nll` is always the unsmoothed negative log-likelihood in nats.
    """

    total: Tensor
    terms: Mapping[str, Tensor]


class Objective(Protocol):
    """Runs the model as it needs it: teacher-forced once, or along sampled paths."""

    def __call__(
        self, model: Captioner, context: ContextSet, sources: Tensor, targets: Tensor, word_index: Tensor
    ) -> Loss:
        """The loss of captions.

        Args:
            model: in training or evaluation mode.
            context: B images.
            sources: `[B, N, C]`, BOS w1 .. wn.
            targets: `[W]`, w1 .. wn EOS of all captions.
            word_index: `[W]`, where the targets lie in the flattened `[B, N, C]`.
        """
        ...


class CrossEntropy:
    """The sum over captions of -log p(y | image), optionally smoothed.

    Args:
        label_smoothing: the share of each target that is spread evenly over all V words (Szegedy et al. 2016).
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; it must be at least 0 and below 1")
        self.label_smoothing = label_smoothing

    def __call__(
        self, model: Captioner, context: ContextSet, sources: Tensor, targets: Tensor, word_index: Tensor
    ) -> Loss:
        """See `Objective`."""
        hidden = model(context, sources).hidden.flatten(0, 2)[word_index]
        logits = model.readout(hidden)
        log_probs = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        nll = -log_probs.gather(1, targets[:, None]).sum()
        total = nll
        if self.label_smoothing:
            uniform = -log_probs.mean(dim=-1).sum()
            total = (1 - self.label_smoothing) * nll + self.label_smoothing * uniform
        return Loss(total, {"nll": nll.detach()})
