"""What every objective shares.

B images, N captions per image, C prediction steps, W real target positions, V words.

Every loss is a sum over the batch's captions; the Lightning module divides the gradient by the number of real words of
all processes and accumulated batches, so that N processes equal one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.models.protocol import Captioner
from captioning.training.objectives.draws import Draws
from captioning.training.objectives.task import Task


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of a batch.

    Attributes:
        total: what is minimised, a sum over captions.
        words: the real words that it is a sum over, by whose number the gradient is divided.
        terms: detached sums to log per word; `nll` is always the unsmoothed negative log-likelihood in nats.
    """

    total: Tensor
    words: int
    terms: Mapping[str, Tensor]


class Objective(nn.Module, ABC):
    """Runs the model as it needs it: teacher-forced once, or along sampled paths.

    A module for its buffers, which checkpoints keep, and for its mode: in evaluation it gives the likelihood alone.

    Attributes:
        stochastic: whether it learns from sampled attention, and so needs a `StochasticCaptioner`.
        needs_attention: whether, as it is set, it needs a captioner with attention.
        needs_initial: whether, as it is set, it compares with the model that training begins from.
    """

    stochastic: ClassVar[bool] = False
    needs_attention: bool = False
    needs_initial: bool = False

    def prepare(self, task: Task, model: nn.Module) -> None:
        """Takes what it needs beyond the batch, once, before anything is learned; most need nothing.

        Args:
            task: what is learned from.
            model: as training begins with it, and as an interrupted training is given it again.
        """

    def origin(self) -> dict[str, str]:
        """What the record of a run is to say of it beside its settings."""
        return {}

    @abstractmethod
    def forward(
        self, model: Captioner, context: ContextSet, sources: Tensor, targets: Tensor, word_index: Tensor, draws: Draws
    ) -> Loss:
        """The loss of captions.

        Args:
            model: in training or evaluation mode.
            context: B images.
            sources: `[B, N, C]`, BOS w1 .. wn.
            targets: `[W]`, w1 .. wn EOS of all captions.
            word_index: `[W]`, where the targets lie in the flattened `[B, N, C]`.
            draws: the batch's random numbers; in evaluation none is used.
        """

    def end_step(self, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Moves on what the objective itself learns; called once per optimiser step, after its last batch.

        Args:
            total: sums a tensor over all processes.

        Returns:
            What to log.
        """
        return {}


def likelihood(
    model: Captioner,
    context: ContextSet,
    sources: Tensor,
    targets: Tensor,
    word_index: Tensor,
    label_smoothing: float = 0.0,
) -> Loss:
    """The likelihood of captions alone, as `Objective.forward` takes them."""
    hidden = model(context, sources).hidden.flatten(0, 2)[word_index]
    nll, losses = word_losses(model.readout(hidden), targets, label_smoothing)
    return Loss(losses.sum(), len(word_index), {"nll": nll.detach().sum()})


def word_losses(logits: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood of each word, and the loss of it.

    Args:
        logits: `[W, V]`.
        targets: `[W]`.
        label_smoothing: the share of each target that is spread evenly over all V words (Szegedy et al. 2016).

    Returns:
        Two `[W]` in at least single precision, in nats; the same tensor twice without smoothing.
    """
    log_probs = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    nll = -log_probs.gather(1, targets[:, None]).squeeze(1)
    if not label_smoothing:
        return nll, nll
    return nll, (1 - label_smoothing) * nll - label_smoothing * log_probs.mean(dim=-1)


def real_positions(word_index: Tensor, shape: torch.Size) -> Tensor:
    """`[B, N, C]` bool: the positions with a target."""
    real = torch.zeros(shape.numel(), dtype=torch.bool, device=word_index.device)
    return real.index_fill_(0, word_index, True).view(shape)
