"""Hard attention's objective: REINFORCE with a moving-average baseline (Xu et al. 2015, section 4.1).

B images, N captions per image, S samples per caption, C prediction steps, W real target positions.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.config.types import Length, NotNegative, Probability, Samples, Share, validated
from captioning.models.protocol import StochasticCaptioner
from captioning.training.objectives.base import BatchRandom, Loss, Objective
from captioning.training.objectives.cross_entropy import doubly_stochastic, likelihood, real_positions, word_losses

Credit = Literal["caption", "future"]


class Reinforce(Objective):
    """A surrogate whose gradient estimates that of sum_s p(s|a) log p(y|s,a) <= log p(y|a) (Eq. 10-12).

    Per caption, averaged over S sampled paths s:

        -log p(y|s,a) - lambda_r (log p(y|s,a) - b) log p(s|a) - lambda_e H[s]

    The advantage (log p(y|s,a) - b) is a constant; log p(s|a) = sum_t log alpha_t(s_t) is differentiated, also through
    the LSTM; H is the entropy of alpha summed over the path's steps. An image that is not sampled takes the expected
    context at every step and has the likelihood alone: soft attention's loss (end of section 4.1).

    Args:
        label_smoothing: of the first term alone; the reward is the likelihood itself.
        doubly_stochastic: lambda of Eq. 14, off by default for hard attention (D).
        samples: S.
        sample_probability: probability that an image of a batch is sampled; one coin for its captions and words (D).
        reinforce: lambda_r.
        entropy: lambda_e.
        decay: of the baseline, b_k = decay b_{k-1} + (1 - decay) mean_k with b_0 = 0 and the mean over all sampled
            captions of an optimiser step on all processes. Step k uses b_{k-1}; one without samples leaves it (D).
        normalise: divide the advantage by max(1, sqrt(v)) with v the running variance of the reward, updated like the
            baseline: v_k = decay v_{k-1} + (1 - decay) var_k with v_0 = 0 (Mnih, Gregor 2014, section 2.3).
        credit: `caption` rewards every location by the caption's log p(y|s,a), as Eq. 12. `future` rewards s_t by the
            words that it can influence, those at and after t, with a baseline for each step.
        max_words: the longest caption, for the number of baselines under `future`.
    """

    stochastic = True
    baseline: Tensor
    variance: Tensor | None
    _rewards: Tensor

    @validated
    def __init__(
        self,
        *,
        label_smoothing: Share = 0.0,
        doubly_stochastic: NotNegative = 0.0,
        samples: Samples = 1,
        sample_probability: Probability = 0.5,
        reinforce: NotNegative = 1.0,
        entropy: NotNegative = 0.002,
        decay: Share = 0.9,
        normalise: bool = False,
        credit: Credit = "caption",
        max_words: Length = 14,
    ) -> None:
        super().__init__()
        self.label_smoothing, self.doubly_stochastic = label_smoothing, doubly_stochastic
        self.samples, self.sample_probability = samples, sample_probability
        self.reinforce, self.entropy, self.decay = reinforce, entropy, decay
        self.credit: Credit = credit
        steps = max_words + 1 if credit == "future" else 1
        self.register_buffer("baseline", torch.zeros(steps, dtype=torch.float64))
        self.register_buffer("variance", torch.zeros_like(self.baseline) if normalise else None)
        # of the optimiser step's batches so far, for each baseline: sum of rewards, number and, for v, sum of squares
        self.register_buffer("_rewards", torch.zeros(2 + normalise, steps, dtype=torch.float64), persistent=False)

    def forward(  # type: ignore[override]
        self,
        model: StochasticCaptioner,
        context: ContextSet,
        sources: Tensor,
        targets: Tensor,
        word_index: Tensor,
        random: BatchRandom,
    ) -> Loss:
        """See `Objective`; in evaluation, the likelihood under the model's own choice of context."""
        if not self.training:
            return likelihood(model, context, sources, targets, word_index, self.label_smoothing)

        if self.credit == "future" and sources.shape[-1] > len(self.baseline):
            raise ValueError(f"{sources.shape[-1] - 1} words came in a caption; max_words is {len(self.baseline) - 1}")
        words = len(word_index)
        sampled = random.uniform() < self.sample_probability
        uniform = random.uniform(sources.shape[1], self.samples, sources.shape[2]).flatten(1, 2)
        sources, targets, word_index = self._repeated(sources, targets, word_index)
        output = model(context, sources, need_weights=bool(self.doubly_stochastic), sampled=sampled, uniform=uniform)
        logits = model.readout(output.hidden.flatten(0, 2)[word_index])
        nll, losses = word_losses(logits, targets, self.label_smoothing)
        total, terms = losses.sum(), {"nll": nll.detach().sum()}

        real = real_positions(word_index, sources.shape)
        policy = output.policy
        assert policy is not None
        on_path = real & sampled[:, None, None]
        rewards = self._reward(nll.detach(), word_index, sources.shape)
        steps = rewards.shape[-1]
        advantage = rewards - self.baseline[:steps].to(rewards.dtype)
        if self.variance is not None:
            advantage = advantage / self.variance[:steps].clamp(min=1).sqrt().to(rewards.dtype)
        total = total - self.reinforce * (advantage * policy.log_prob * on_path).sum()
        total = total - self.entropy * (policy.entropy * on_path).sum()
        self._add(rewards, on_path)
        if self.doubly_stochastic:
            assert output.attention is not None
            penalty = doubly_stochastic(output.attention, real, context.mask)
            total = total + self.doubly_stochastic * penalty
            terms["doubly_stochastic"] = penalty.detach()
        return Loss(total / self.samples, words, {name: term / self.samples for name, term in terms.items()})

    def _repeated(self, sources: Tensor, targets: Tensor, word_index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Repeat each caption S times: `[B, N S, C]` and twice `[W S]`."""
        steps, s = sources.shape[-1], self.samples
        copies = torch.arange(s, device=word_index.device)
        caption, step = word_index // steps, word_index % steps
        index = (caption[:, None] * s + copies) * steps + step[:, None]
        return sources.repeat_interleave(s, dim=1), targets.repeat_interleave(s), index.flatten()

    def _reward(self, nll: Tensor, word_index: Tensor, shape: torch.Size) -> Tensor:
        """log p(y|s,a) of each caption, `[B, N, 1]`, or of its words at and after each step, `[B, N, C]`."""
        log_probs = torch.zeros(shape.numel(), dtype=nll.dtype, device=nll.device)
        log_probs = log_probs.index_copy_(0, word_index, -nll).view(shape)
        if self.credit == "caption":
            return log_probs.sum(dim=-1, keepdim=True)
        return log_probs.flip(-1).cumsum(dim=-1).flip(-1)

    def _add(self, rewards: Tensor, on_path: Tensor) -> None:
        """Add the batch to the rewards of the optimiser step."""
        counted = on_path.any(dim=-1, keepdim=True) if self.credit == "caption" else on_path
        moments = (rewards, torch.ones_like(rewards), rewards.double().square())[: len(self._rewards)]
        for sums, moment in zip(self._rewards, moments, strict=True):
            sums[: rewards.shape[-1]] += (moment * counted).sum(dim=(0, 1))

    def end_step(self, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Update the baseline by the rewards since the last call; log it (under `future`, that of the first step)."""
        reward, count, *squares = total(self._rewards)
        mean = reward / count.clamp(min=1)
        if self.variance is not None:
            self.variance = self._updated(self.variance, squares[0] / count.clamp(min=1) - mean.square(), count)
        self.baseline = self._updated(self.baseline, mean, count)
        self._rewards.zero_()
        return {"baseline": self.baseline[0]}

    def _updated(self, before: Tensor, now: Tensor, count: Tensor) -> Tensor:
        return torch.where(count > 0, self.decay * before + (1 - self.decay) * now, before)
