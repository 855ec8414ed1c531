"""Base class of objectives: how a batch becomes a loss.

B images, N captions per image, W real target positions, V words. Every loss is a sum over the
captions of a batch; the Lightning module divides the gradient by the number of real words of all
processes and accumulated batches, so that N processes equal one.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.data.batch import Batch
from captioning.data.caption_words import CaptionWords
from captioning.data.example import Example, reference_words
from captioning.data.vocabulary import Vocabulary
from captioning.decoding.sampling import splitmix64, uniform
from captioning.models.protocol import Captioner
from captioning.tokens import EOS, UNK


@dataclass(frozen=True)
class Loss:
    total: Tensor  # to be minimised, a sum over captions
    words: int  # real words in the sum, by which the gradient is divided
    # detached sums to log per word; `nll`: unsmoothed negative log-likelihood in nats
    terms: Mapping[str, Tensor]

    def add_term(self, weight: float, term: Tensor, name: str = "") -> Self:
        """Add `weight` times a term, which is logged if it has a name."""
        named = {name: term.detach()} if name else {}
        return replace(self, total=self.total + weight * term, terms={**self.terms, **named})


@dataclass(frozen=True)
class TrainingData:
    """The training images, which `BatchRandom.index` counts, and the words of the ids."""

    examples: Sequence[Example]
    vocabulary: Vocabulary

    def words(self) -> Vocabulary:
        """The vocabulary; where its ids are pieces, that of the captions' words made of them."""
        if not self.vocabulary.pieces:
            return self.vocabulary
        words = CaptionWords.of(reference_words(self.examples)).counts()
        ids = {word: self.vocabulary.encode([word]) for word in words}
        known = (word for word in words if UNK not in ids[word])
        return Vocabulary(sorted(known, key=lambda word: (ids[word], word)))

    def counts(self) -> Tensor:
        """`[V]`: counts of the ids as targets: words of captions, including UNK, and EOS."""
        encoded = self.vocabulary.encode_all(reference_words(self.examples))
        found = encoded.counts() + Counter({EOS: len(encoded)})
        return torch.tensor([found[i] for i in range(len(self.vocabulary))])


@dataclass(frozen=True)
class BatchRandom:
    """Random numbers that belong to images.

    They are independent of the order of batches, data workers and processes.
    """

    seed: int  # of the run
    step: int  # of the batch, counted over all epochs; the same on all processes
    index: Tensor  # `[B]` int64, each image's position in its split

    def uniform(self, *sizes: int) -> Tensor:
        """`[B, *sizes]` in [0, 1), multiples of 2^-24.

        The number at `(b, i, j, ...)` is a function of `(seed, step, index[b], i, j, ...)` alone.
        """
        seed, step = (torch.full_like(self.index, part) for part in (self.seed, self.step))
        return uniform(splitmix64(splitmix64(seed, step), self.index), *sizes)


class Objective(nn.Module, ABC):
    """Base class of losses; in evaluation mode, only the likelihood.

    It is a module so that checkpoints include its buffers.

    Example:
        The likelihood, and in training a hundredth of the squared hidden features:

        >>> from captioning.training.objectives.cross_entropy import likelihood
        >>> class Small(Objective):
        ...     def forward(self, model, context, batch, random):
        ...         output = model(context, batch.sources)
        ...         loss = likelihood(model, output, batch)
        ...         if not self.training:
        ...             return loss
        ...         return loss.add_term(0.01, output.hidden.square().sum(), "hidden")

        A caption of two words is three targets, with EOS:

        >>> from captioning.data.batch import collate
        >>> from captioning.models.transformer import Transformer
        >>> model = Transformer(vocab_size=9, d_context=3, grid=(1, 2), d_model=8, heads=2)
        >>> context = ContextSet(torch.zeros(1, 2, 3), (1, 2))
        >>> batch = collate([0], context.vectors, [[[4, 5]]])
        >>> loss = Small()(model, context, batch, BatchRandom(seed=0, step=0, index=batch.index))
        >>> loss.words, sorted(loss.terms)
        (3, ['hidden', 'nll'])
    """

    stochastic: ClassVar[bool] = False  # learns from sampled attention of such a captioner
    needs_attention: bool = False  # needs a captioner with attention, given the settings
    needs_initial: bool = False  # needs the initial model, given the settings

    def prepare(self, data: TrainingData, model: Captioner) -> None:
        """Set up from the training data and the initial model; called once before training."""

    def provenance(self) -> dict[str, str]:
        """Entries for the provenance of a run, in addition to the settings."""
        return {}

    @abstractmethod
    def forward(
        self, model: Captioner, context: ContextSet, batch: Batch, random: BatchRandom
    ) -> Loss:
        """Return the loss of the batch's captions; `random` is unused in evaluation."""

    def on_optimizer_step(self, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Update the objective's own state once per optimiser step, and return values to log.

        `total` sums a tensor over all processes.
        """
        return {}
