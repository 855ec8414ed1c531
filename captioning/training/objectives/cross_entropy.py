"""Maximum likelihood, with label smoothing, doubly stochastic regularisation and scheduled sampling.

B images, N captions per image, C prediction steps, L context vectors, W real target positions, V words.
"""

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.config.types import NotNegative, Probability, Share, validated
from captioning.decoding import FORBIDDEN
from captioning.decoding.caption import log_probs
from captioning.decoding.sampling import draw_any
from captioning.models.protocol import Captioner
from captioning.tokens import EOS
from captioning.training.objectives.base import BatchRandom, Loss, Objective


class CrossEntropy(Objective):
    """The sum over captions of -log p(y | image) + lambda sum_i (1 - sum_t alpha_ti)^2 (Xu et al. 2015, Eq. 14).

    Args:
        label_smoothing: share of each target that is spread evenly over all V words (Szegedy et al. 2016).
        doubly_stochastic: lambda, in the equation's scale: the likelihood is summed over a caption's steps and the
            square over all locations; neither is divided by their number.
        scheduled_sampling: probability that an input word is replaced by the model's own; targets stay.
    """

    @validated
    def __init__(
        self,
        label_smoothing: Share = 0.0,
        doubly_stochastic: NotNegative = 0.0,
        scheduled_sampling: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.label_smoothing, self.doubly_stochastic = label_smoothing, doubly_stochastic
        self.scheduled_sampling = scheduled_sampling
        self.needs_attention = doubly_stochastic > 0

    def forward(
        self,
        model: Captioner,
        context: ContextSet,
        sources: Tensor,
        targets: Tensor,
        word_index: Tensor,
        random: BatchRandom,
    ) -> Loss:
        penalised = self.training and self.needs_attention
        if self.training and self.scheduled_sampling:
            sources = scheduled_inputs(model, context, sources, self.scheduled_sampling, random)
        output = model(context, sources, need_weights=penalised)
        logits = model.readout(output.hidden.flatten(0, 2)[word_index])
        nll, losses = word_losses(logits, targets, self.label_smoothing)
        total, terms = losses.sum(), {"nll": nll.detach().sum()}
        if penalised:
            if output.attention is None:
                raise ValueError("objective.doubly_stochastic needs attention, and the model has none: set it to 0")
            real = real_positions(word_index, sources.shape)
            penalty = doubly_stochastic(output.attention, real, context.mask)
            total = total + self.doubly_stochastic * penalty
            terms["doubly_stochastic"] = penalty.detach()
        return Loss(total, len(word_index), terms)


def likelihood(
    model: Captioner,
    context: ContextSet,
    sources: Tensor,
    targets: Tensor,
    word_index: Tensor,
    label_smoothing: float = 0.0,
) -> Loss:
    """The negative log-likelihood of captions, with the arguments of `Objective.forward`."""
    hidden = model(context, sources).hidden.flatten(0, 2)[word_index]
    nll, losses = word_losses(model.readout(hidden), targets, label_smoothing)
    return Loss(losses.sum(), len(word_index), {"nll": nll.detach().sum()})


def word_losses(logits: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood and the smoothed loss of each word.

    Args:
        logits: `[W, V]`.
        targets: `[W]`.
        label_smoothing: as for `CrossEntropy`.

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


def doubly_stochastic(attention: Tensor, real: Tensor, mask: Tensor | None = None) -> Tensor:
    """sum_i^L (1 - sum_t^C alpha_ti)^2, summed over captions (Xu et al. 2015, Eq. 14).

    Args:
        attention: alpha, `[B, N, C, L]`.
        real: `[B, N, C]` bool, the steps that count; a caption without any is padding and adds nothing.
        mask: `[B, L]` bool, the locations that count; None: all.
    """
    seen = (attention * real[..., None]).sum(dim=2)  # [B, N, L]
    penalty = (1 - seen).square()
    if mask is not None:
        penalty = penalty * mask[:, None]
    return (penalty.sum(dim=-1) * real.any(dim=-1)).sum()


@torch.no_grad()
def scheduled_inputs(
    model: Captioner, context: ContextSet, sources: Tensor, probability: float, random: BatchRandom
) -> Tensor:
    """Scheduled sampling: the captions' inputs `[B, N, C]`, some words replaced by draws from the model.

    Each word after BOS is replaced with `probability`. A recurrent model predicts it from the words before it, replaced
    ones included (Bengio et al., "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks", 2015). A
    `parallel` model predicts all of them once, from the caption's own words: the first of two passes (Mihaylova and
    Martins, "Scheduled Sampling for Transformers", 2019). (D) Neither UNK nor EOS is drawn.
    """
    uniform = random.uniform(*sources.shape[1:], 2)
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
