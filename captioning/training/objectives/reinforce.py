"""Hard attention's objective: REINFORCE with a moving-average baseline.

Xu et al. 2015, section 4.1.

B images, N captions per image, S samples per caption, C prediction steps, W real target positions.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.config.types import Length, NotNegative, Probability, Samples, Share, validated
from captioning.data.batch import Batch
from captioning.models.protocol import Captioner
from captioning.tokens import PAD
from captioning.training.objectives.base import BatchRandom, Loss, Objective
from captioning.training.objectives.cross_entropy import doubly_stochastic, likelihood, word_losses


class Reinforce(Objective):
    """REINFORCE over attended locations (Eq. 10-12).

    A surrogate whose gradient estimates that of sum_s p(s|a) log p(y|s,a) <= log p(y|a).

    Per caption, averaged over S sampled paths s, with a constant advantage (log p(y|s,a) - b):

        -log p(y|s,a) - lambda_r (log p(y|s,a) - b) log p(s|a) - lambda_e H[s]

    log p(s|a) = sum_t log alpha_t(s_t) and the entropy H of alpha are summed over the path's steps.
    An image is sampled with `sample_probability`, one coin for its captions and words (D);
    otherwise it takes the expected context and has the likelihood alone, soft attention's loss.
    `label_smoothing` is of the first term. Under `reward_to_go` s_t is rewarded by the words at
    and after t, with a baseline for each step.

    Optimiser step k uses b_{k-1}; then b_k = decay b_{k-1} + (1 - decay) mean_k, b_0 = 0, with the
    mean over the sampled captions of all processes, if there are any (D). `normalise` divides the
    advantage by max(1, sqrt(v)), the moving average of their variance likewise (Mnih, Gregor 2014,
    section 2.3).
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
        reward_to_go: bool = False,
        max_words: Length = 14,
    ):
        super().__init__()
        self.label_smoothing, self.doubly_stochastic = label_smoothing, doubly_stochastic
        self.samples, self.sample_probability = samples, sample_probability
        self.reinforce, self.entropy, self.decay = reinforce, entropy, decay
        self.by_caption = not reward_to_go
        steps = 1 if self.by_caption else max_words + 1
        self.register_buffer("baseline", torch.zeros(steps, dtype=torch.float64))
        self.register_buffer("variance", torch.zeros_like(self.baseline) if normalise else None)
        # Of the optimiser step's batches so far, for each baseline: sum of rewards, number and, for
        # v, sum of squares
        self.register_buffer(
            "_rewards", torch.zeros(2 + normalise, steps, dtype=torch.float64), persistent=False
        )

    def forward(
        self, model: Captioner, context: ContextSet, batch: Batch, random: BatchRandom
    ) -> Loss:
        """See `Objective`.

        In evaluation, the likelihood under the model's own choice of context.
        """
        if not self.training:
            return likelihood(model, model(context, batch.sources), batch, self.label_smoothing)

        n, c = batch.sources.shape[1:]
        if not self.by_caption and c > len(self.baseline):
            raise ValueError(
                f"{c - 1} words came in a caption; max_words is {len(self.baseline) - 1}"
            )
        sampled = random.uniform() < self.sample_probability
        uniform = random.uniform(n, self.samples, c).flatten(1, 2)
        paths = self._repeated(batch)
        need_weights = self.doubly_stochastic > 0
        output = model(
            context, paths.sources, need_weights=need_weights, sampled=sampled, uniform=uniform
        )
        logits = model.readout(output.hidden.flatten(0, 2)[paths.word_index])
        nll, losses = word_losses(logits, paths.targets, self.label_smoothing)
        loss = Loss(losses.sum(), len(batch.word_index), {"nll": nll.detach().sum()})

        policy = output.policy
        assert policy is not None
        on_path = (paths.tokens[..., 1:] != PAD) & sampled[:, None, None]
        rewards = self._reward(nll.detach(), paths)
        steps = rewards.shape[-1]
        advantage = rewards - self.baseline[:steps].to(rewards.dtype)
        if self.variance is not None:
            advantage = advantage / self.variance[:steps].clamp(min=1).sqrt().to(rewards.dtype)
        self._add(rewards, on_path)
        loss = loss.add_term(-self.reinforce, (advantage * policy.log_prob * on_path).sum())
        loss = loss.add_term(-self.entropy, (policy.entropy * on_path).sum())
        if need_weights:
            penalty = doubly_stochastic(output, paths, context)
            loss = loss.add_term(self.doubly_stochastic, penalty, "doubly_stochastic")
        terms = {name: term / self.samples for name, term in loss.terms.items()}
        return Loss(loss.total / self.samples, loss.words, terms)

    def _repeated(self, batch: Batch) -> Batch:
        """Repeat each caption, and each word index, S times in a row."""
        copies = torch.arange(self.samples, device=batch.tokens.device)
        steps = batch.tokens.shape[-1] - 1
        caption, step = batch.word_index // steps, batch.word_index % steps
        index = (caption[:, None] * self.samples + copies) * steps + step[:, None]
        tokens = batch.tokens.repeat_interleave(self.samples, dim=1)
        return replace(batch, tokens=tokens, word_index=index.flatten())

    def _reward(self, nll: Tensor, batch: Batch) -> Tensor:
        """Rewards log p(y|s,a) of each caption, `[B, N, 1]`, or of its words at and after each
        step, `[B, N, C]`.
        """
        log_probs = nll.new_zeros(batch.sources.shape)
        log_probs.view(-1)[batch.word_index] = -nll
        if self.by_caption:
            return log_probs.sum(-1, keepdim=True)
        return log_probs.flip(-1).cumsum(-1).flip(-1)

    def _add(self, rewards: Tensor, on_path: Tensor) -> None:
        counted = on_path.any(-1, keepdim=True) if self.by_caption else on_path
        moments = rewards, torch.ones_like(rewards), rewards.double().square()
        for sums, moment in zip(self._rewards, moments, strict=False):  # the last for v alone
            sums[: rewards.shape[-1]] += (moment * counted).sum((0, 1))

    def on_optimizer_step(self, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Update the baseline; return it to be logged.

        With `reward_to_go`, that of the first step.
        """
        reward, count, *squares = total(self._rewards)
        mean = reward / count.clamp(min=1)
        if self.variance is not None:
            variance = squares[0] / count.clamp(min=1) - mean.square()
            self.variance = self._updated(self.variance, variance, count)
        self.baseline = self._updated(self.baseline, mean, count)
        self._rewards.zero_()
        return {"baseline": self.baseline[0]}

    def _updated(self, before: Tensor, now: Tensor, count: Tensor) -> Tensor:
        return torch.where(count > 0, self.decay * before + (1 - self.decay) * now, before)
