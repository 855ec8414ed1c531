"""Base class of objectives: how a batch becomes a loss.

B images, N captions per image, C prediction steps, W real target positions, V words.

Every loss is a sum over the captions of a batch. The Lightning module divides the gradient by the number of real words
of all processes and accumulated batches, so that N processes equal one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.data.example import Example
from captioning.data.vocabulary import Vocabulary
from captioning.decoding.counter_rng import derived, uniform
from captioning.models.protocol import Captioner
from captioning.tokens import EOS


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of a batch.

    Attributes:
        total: to be minimised, a sum over captions.
        words: number of real words in the sum; the gradient is divided by it.
        terms: detached sums to log per word; `nll` is always the unsmoothed negative log-likelihood in nats.
    """

    total: Tensor
    words: int
    terms: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The training images, which `BatchRandom.index` counts, and the words of the ids."""

    examples: Sequence[Example]
    vocabulary: Vocabulary

    def references(self) -> list[list[list[int]]]:
        """Return each image's captions as ids, including those too long to be read; unknown words are UNK."""
        return [[self.vocabulary.encode(r.words) for r in example.references] for example in self.examples]

    def counts(self) -> Tensor:
        """Return how often each id is a target, `[V]`: the words of captions, UNK included, and their ends."""
        ids = [i for captions in self.references() for caption in captions for i in (*caption, EOS)]
        return torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=len(self.vocabulary))


@dataclass(frozen=True, slots=True)
class BatchRandom:
    """Random numbers that belong to images: independent of the order of batches, data workers and processes.

    Attributes:
        seed: of the run.
        step: of the batch, counted over all epochs; the same on all processes.
        index: `[B]` int64, each image's position in its split.
    """

    seed: int
    step: int
    index: Tensor

    def uniform(self, *sizes: int) -> Tensor:
        """`[B, *sizes]` in [0, 1), multiples of 2^-24.

        The number at `(b, i, j, ...)` is a function of `(seed, step, index[b], i, j, ...)` alone.
        """
        seed, step = (torch.full_like(self.index, part) for part in (self.seed, self.step))
        return uniform(derived(derived(seed, step), self.index), *sizes)


class Objective(nn.Module, ABC):
    """Runs the model as it needs it: teacher-forced once, or along sampled paths.

    It is a module so that checkpoints keep its buffers. In evaluation mode it gives the likelihood alone.

    Attributes:
        stochastic: it learns from sampled attention, and so needs a `StochasticCaptioner`.
        needs_attention: with its settings, it needs a captioner with attention.
        needs_initial: with its settings, it compares with the model that training begins from.
    """

    stochastic: ClassVar[bool] = False
    needs_attention: bool = False
    needs_initial: bool = False

    def prepare(self, data: TrainingData, model: nn.Module) -> None:
        """Set up from the training data and the initial model; called once before training."""

    def origin(self) -> dict[str, str]:
        """Entries for the provenance of a run, in addition to the settings."""
        return {}

    @abstractmethod
    def forward(
        self,
        model: Captioner,
        context: ContextSet,
        sources: Tensor,
        targets: Tensor,
        word_index: Tensor,
        random: BatchRandom,
    ) -> Loss:
        """Return the loss of captions.

        Args:
            model: in training or evaluation mode.
            context: B images.
            sources: `[B, N, C]`, BOS w1 .. wn.
            targets: `[W]`, w1 .. wn EOS of all captions.
            word_index: `[W]`, positions of the targets in the flattened `[B, N, C]`.
            random: the batch's random numbers; not used in evaluation.
        """

    def end_step(self, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Update the objective's own state; called once per optimiser step.

        Args:
            total: sums a tensor over all processes.

        Returns:
            Values to log.
        """
        return {}
