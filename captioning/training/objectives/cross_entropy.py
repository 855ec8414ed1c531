"""Maximum likelihood, and soft attention's regularisation.

B images, N captions per image, C prediction steps, W real target positions.
"""

from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.config.types import NotNegative, Probability, Share, validated
from captioning.models.protocol import Captioner
from captioning.training.objectives.doubly_stochastic import doubly_stochastic
from captioning.training.objectives.draws import Draws
from captioning.training.objectives.loss import Loss, Objective, real_positions, word_losses
from captioning.training.objectives.scheduled_sampling import own_words


class CrossEntropy(Objective):
    """The sum over captions of -log p(y | image) + lambda sum_i (1 - sum_t alpha_ti)^2 (Xu et al. 2015, Eq. 14).

    Args:
        label_smoothing: the share of each target that is spread evenly over all V words (Szegedy et al. 2016).
        doubly_stochastic: lambda. In the equation's scale: the likelihood summed over a caption's steps, the square
            over all locations, neither divided by its number.
        scheduled_sampling: the probability that a word which the model reads is its own and not the reference's; what
            it is to predict stays.
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
        self, model: Captioner, context: ContextSet, sources: Tensor, targets: Tensor, word_index: Tensor, draws: Draws
    ) -> Loss:
        penalised = self.training and self.needs_attention
        if self.training and self.scheduled_sampling:
            sources = own_words(model, context, sources, self.scheduled_sampling, draws)
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
