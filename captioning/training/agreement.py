"""Whether the two forms of a captioner agree: all words at once for training, and word by word.

B images, N captions per image, C steps, E hidden features, V words.
"""

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.data.batch import BatchIndex
from captioning.data.module import CaptionData
from captioning.errors import CaptioningError
from captioning.models.parts.numerics import evaluating
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, PAD, UNK
from captioning.training.module import CaptioningModule

IMAGES = 4
TOLERANCE = 1e-3
"""The largest difference (D) of features and log-probabilities, both in single precision."""


def has_own_parts(model: Captioner) -> bool:
    """Whether a part of a model is neither of this package nor of a library."""
    places = {type(part).__module__.partition(".")[0] for part in model.modules()}
    return not places <= {"captioning", "torch", "transformers", "peft"}


@torch.no_grad()
def check_agreement(module: CaptioningModule, data: CaptionData) -> None:
    """Refuse a model whose `forward` sees later words, or gives other words than `step`.

    It would train to low losses and generate something else. Tried with captions of the first
    training images, in evaluation mode, with one seed for both forms, so that attention that is
    sampled draws the same locations.
    """
    dataset, model = data.datasets["train"], module.cpu().model
    batch = dataset[BatchIndex(0, list(range(min(IMAGES, len(dataset)))))]
    words, real = batch.sources, batch.tokens[..., 1:] != PAD
    with evaluating(model), torch.random.fork_rng(devices=[]):
        context = module.context(batch)
        hidden = _all_at_once(model, context, words)
        for step in range(1, words.shape[-1]):
            others = words.clone()  # with another word from this step on
            others[..., step:] = torch.where(words[..., step:] == UNK, BOS, UNK)
            others[words == PAD] = PAD
            changed = _differing(hidden, _all_at_once(model, context, others), real)
            changed[..., step:] = False
            if changed.any():
                raise CaptioningError(
                    f"model: forward sees later words. {_place(changed)} changes with the words "
                    f"that are read from step {step + 1} on: mask what a step may not see"
                )
        at_once = model.readout(hidden).log_softmax(-1)
        differing = _differing(at_once, _word_by_word(model, context, words), real)
        if differing.any():
            raise CaptioningError(
                f"model: forward and step disagree. {_place(differing)} has log-probabilities that "
                f"differ by more than {TOLERANCE:g}: both must compute the same"
            )


def _all_at_once(model: Captioner, context: ContextSet, words: Tensor) -> Tensor:
    """Features `[B, N, C, E]`."""
    torch.manual_seed(0)
    return model(context, words).hidden


def _word_by_word(model: Captioner, context: ContextSet, words: Tensor) -> Tensor:
    """Log-probabilities `[B, N, C, V]`."""
    torch.manual_seed(0)
    state, steps = model.start(context, words.shape[1]), []
    for column in words.unbind(-1):
        step = model.step(column, state)
        state = step.state
        steps.append(step.logits.log_softmax(-1))
    return torch.stack(steps, dim=2)


def _differing(one: Tensor, other: Tensor, real: Tensor) -> Tensor:
    """The real words `[B, N, C]` at which two tensors `[B, N, C, ..]` differ."""
    equal = torch.isclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return real & ~equal.all(-1)


def _place(differing: Tensor) -> str:
    """The first word of those that differ, `[B, N, C]`."""
    image, caption, step = (int(number) + 1 for number in differing.nonzero()[0])
    return f"Step {step} of caption {caption} of training image {image}"
