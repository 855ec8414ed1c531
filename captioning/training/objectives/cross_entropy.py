"""Maximum likelihood and its terms.

Label smoothing, doubly stochastic regularisation and scheduled sampling.

B images, N captions per image, C prediction steps, L context vectors, W real target positions, V
words.
"""

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.config.types import NotNegative, Probability, Share, validated
from captioning.data.batch import Batch
from captioning.decoding import FORBIDDEN
from captioning.decoding.sampling import draw_any
from captioning.decoding.steps import log_probs
from captioning.models.protocol import Captioner, CaptionOutput
from captioning.tokens import EOS, PAD
from captioning.training.objectives.base import BatchRandom, Loss, Objective


class CrossEntropy(Objective):
    """Maximum likelihood with doubly stochastic regularisation.

    The sum over captions of -log p(y | image) + lambda sum_i (1 - sum_t alpha_ti)^2 (Xu et al.
    2015, Eq. 14).

    lambda is `doubly_stochastic`, in the equation's scale: the likelihood is summed over a
    caption's steps and the square over all locations; neither is divided by their number.
    `label_smoothing` is the share of each target that is spread evenly over all V words (Szegedy et
    al. 2016).
    """

    @validated
    def __init__(
        self,
        label_smoothing: Share = 0.0,
        doubly_stochastic: NotNegative = 0.0,
        scheduled_sampling: Probability = 0.0,
    ):
        super().__init__()
        self.label_smoothing, self.doubly_stochastic = label_smoothing, doubly_stochastic
        self.scheduled_sampling = scheduled_sampling
        self.needs_attention = doubly_stochastic > 0

    def forward(
        self, model: Captioner, context: ContextSet, batch: Batch, random: BatchRandom
    ) -> Loss:
        sources, need_weights = batch.sources, self.training and self.needs_attention
        if self.training and self.scheduled_sampling:
            sources = scheduled_inputs(model, context, sources, self.scheduled_sampling, random)
        output = model(context, sources, need_weights=need_weights)
        loss = likelihood(model, output, batch, self.label_smoothing)
        if need_weights:
            penalty = doubly_stochastic(output, batch, context)
            loss = loss.add_term(self.doubly_stochastic, penalty, "doubly_stochastic")
        return loss


def likelihood(
    model: Captioner, output: CaptionOutput, batch: Batch, label_smoothing: float = 0.0
) -> Loss:
    """The negative log-likelihood of the targets after the model's pass."""
    logits = model.readout(output.hidden.flatten(0, 2)[batch.word_index])
    nll, losses = word_losses(logits, batch.targets, label_smoothing)
    return Loss(losses.sum(), len(batch.word_index), {"nll": nll.detach().sum()})


def word_losses(
    logits: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood and smoothed loss in nats, each `[W]` in at least single precision.

    `logits` are `[W, V]`, `targets` `[W]`; without smoothing both are the same tensor.
    """
    log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    nll = -log_probs.gather(1, targets[:, None]).squeeze(1)
    if not label_smoothing:
        return nll, nll
    return nll, (1 - label_smoothing) * nll - label_smoothing * log_probs.mean(-1)


def doubly_stochastic(output: CaptionOutput, batch: Batch, context: ContextSet) -> Tensor:
    """Doubly stochastic regularisation (Eq. 14), summed over captions.

    sum_i^L (1 - sum_t^C alpha_ti)^2 over the locations that are there.
    """
    assert output.attention is not None  # `[B, N, C, L]`
    real = batch.tokens[..., 1:] != PAD
    penalty = (1 - (output.attention * real[..., None]).sum(2)).square()  # [B, N, L]
    if context.mask is not None:
        penalty = penalty * context.mask[:, None]
    return (penalty.sum(-1) * real.any(-1)).sum()  # a caption without any step is padding


@torch.no_grad()
def scheduled_inputs(
    model: Captioner, context: ContextSet, sources: Tensor, probability: float, random: BatchRandom
) -> Tensor:
    """Scheduled sampling: the captions' inputs `[B, N, C]`.

    Some words are replaced by draws from the model.

    Each word after BOS is replaced with `probability`. A recurrent model predicts it from the words
    before it, replaced ones included (Bengio et al., "Scheduled Sampling for Sequence Prediction
    with Recurrent Neural Networks", 2015). A `parallel` model predicts all of them once, from the
    caption's own words: the first of two passes (Mihaylova and Martins, "Scheduled Sampling for
    Transformers", 2019). (D) Neither UNK nor EOS is drawn.
    """

    def draw(logits: Tensor, uniform: Tensor) -> Tensor:
        return draw_any(log_probs(logits, (*FORBIDDEN, EOS)), uniform)

    uniform = random.uniform(*sources.shape[1:], 2)
    replaced, height = uniform[..., 0] < probability, uniform[..., 1]
    replaced[..., 0] = False
    if model.parallel:
        words = draw(model.readout(model(context, sources).hidden)[..., :-1, :], height[..., 1:])
        return torch.cat([sources[..., :1], words], dim=-1).where(replaced, sources)
    state = model.start(context, sources.shape[1])
    read = [sources[..., 0]]
    for t in range(1, sources.shape[-1]):
        step = model.step(read[-1], state)
        state = step.state
        drawn = draw(step.logits, height[..., t])
        read.append(drawn.where(replaced[..., t], sources[..., t]))
    return torch.stack(read, dim=-1)
