"""Self-critical training: maximise the reward of sampled captions.

Rennie et al., "Self-critical Sequence Training for Image Captioning", CVPR 2017; the baseline of
the other samples and the pitfalls: Luo, "A Better Variant of Self-Critical Sequence Training",
2020.

B images, S samples per image, T tokens of the longest, W real words of the samples, V words.
"""

import copy
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioning.backbones.context import ContextSet
from captioning.config.types import Length, NotNegative, Positive, Samples, validated
from captioning.data.batch import Batch
from captioning.data.example import reference_counts, reference_words
from captioning.decoding import FORBIDDEN
from captioning.decoding.sampling import draw_any, generate
from captioning.decoding.steps import mask_tokens
from captioning.models.parts.numerics import evaluating
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, EOS, PAD
from captioning.training.objectives.base import BatchRandom, Loss, Objective, TrainingData
from captioning.training.objectives.cross_entropy import likelihood, word_losses
from captioning.training.objectives.rewards import Reward


class SelfCritical(Objective):
    """A surrogate whose gradient estimates that of the expected reward of sampled captions.

    Per image, with samples w^1 .. w^S from p(w | image) at `temperature`, without PAD, BOS and UNK,
    over their words and first EOS, with constant rewards and baselines:

        - sum_s (r(w^s) - b^s) sum_t log p(w_t^s | w_<t^s, image)

    The baseline b^s is the mean reward of the image's `others` (Luo), the reward of its `greedy`
    caption (Rennie), the `mean` of all samples, or `none`. With `reward_eos` the end is a token of
    the reward's n-grams, which are of words even if tokens are pieces of them; without it captions
    end in fragments. Captions are drawn in evaluation
    mode and scored by one parallel pass in training mode (D): with dropout the estimate is biased
    by the difference.

    `kl_weight` times sum_s sum_t KL(p || p_0), over all words that can be drawn, keeps the model
    close to the initial p_0 (D), so that the reward is not gained at the expense of photographs
    unlike the training set. p_0 is in evaluation mode and sees the context sets of a trained
    backbone as it is now; a resumed run builds it again.
    """

    _sums: Tensor

    @validated
    def __init__(
        self,
        *,
        reward: Reward,
        samples: Samples = 5,
        baseline: Literal["others", "greedy", "mean", "none"] = "others",
        reward_eos: bool = True,
        xe_weight: NotNegative = 0.0,
        kl_weight: NotNegative = 0.0,
        temperature: Positive = 1.0,
        max_length: Length = 15,
    ):
        super().__init__()
        if samples < 2 and baseline in ("others", "mean"):
            raise ValueError(
                f"samples={samples} leaves baseline={baseline} nothing to learn from; draw 2 or "
                "more"
            )
        self.reward, self.samples, self.reward_eos = reward, samples, reward_eos
        self.baseline = baseline
        self.xe_weight, self.kl_weight = xe_weight, kl_weight
        self.temperature, self.max_length = temperature, max_length
        self.needs_initial = kl_weight > 0
        # A tuple hides it from saving, counting and averaging.
        self._initial: tuple[Captioner, ...] = ()
        # Sums over the samples of the optimiser step's batches so far, see `on_optimizer_step`.
        self.register_buffer("_sums", torch.zeros(6, dtype=torch.float64), persistent=False)

    def prepare(self, data: TrainingData, model: Captioner) -> None:
        self._vocabulary, self._words = data.vocabulary, data.words()
        captions = self._words.encode_all(reference_words(data.examples))
        sizes = reference_counts(data.examples)
        self.reward.prepare(captions, sizes, len(self._words), self.reward_eos)
        if self.needs_initial:
            self._initial = (copy.deepcopy(model).eval().requires_grad_(False),)

    def provenance(self) -> dict[str, str]:
        """The signature of Hu et al. 2023 (SacreEOS) and the digest of the document frequencies."""
        mode = "STANDARD_wInit" if self.reward_eos else "NO<EOS>_woInit"
        base: str = self.baseline
        if base in ("others", "mean"):
            base = f"average[nspi{self.samples}]"
        signature = f"{mode}+{self.reward.signature}+{base}+1.0.0"
        return {"self_critical": signature, "document_frequencies": self.reward.frequencies.digest}

    def forward(
        self, model: Captioner, context: ContextSet, batch: Batch, random: BatchRandom
    ) -> Loss:
        """See `Objective`; `nll` is that of the samples, in evaluation that of the references."""
        if not self.training:
            return likelihood(model, model(context, batch.sources), batch)
        loss = self.score(model, context, self.draw(model, context, random), random.index)
        if self.xe_weight:
            of_references = likelihood(model, model(context, batch.sources), batch)
            loss = loss.add_term(self.xe_weight, of_references.total)
        return loss

    def draw(self, model: Captioner, context: ContextSet, random: BatchRandom) -> Tensor:
        """Sample captions, `[B, S, T]`, PAD after the end.

        `greedy` adds the greedy caption, `[B, S + 1, T]`.
        """
        uniform = random.uniform(self.samples, self.max_length)

        def choose(words: Tensor, t: int) -> Tensor:
            drawn = draw_any(words[:, : self.samples] / self.temperature, uniform[..., t])
            return torch.cat([drawn, words[:, self.samples :].argmax(-1)], dim=1)

        n = self.samples + (self.baseline == "greedy")
        with evaluating(model):
            return generate(model, context, n, choose, self.max_length, FORBIDDEN).tokens

    def score(self, model: Captioner, context: ContextSet, tokens: Tensor, index: Tensor) -> Loss:
        """The loss of the captions `tokens` that `draw` returned.

        `index` `[B]` are their images' training positions.
        """
        on_cpu = tokens.cpu()  # once: nothing below waits for the device
        in_words = self._in_words(on_cpu)
        rewards = torch.from_numpy(self.reward(index.cpu().numpy(), in_words.numpy()))
        baseline, rewards = self._baseline(rewards), rewards[:, : self.samples]
        sampled, advantage = on_cpu[:, : self.samples], rewards - baseline
        ended, words = sampled == EOS, in_words[:, : self.samples] > EOS
        squares = rewards.square(), advantage.square()
        moments = rewards, *squares, ended, words, torch.ones_like(rewards)
        sums = torch.stack([moment.sum().double() for moment in moments])
        self._sums += sums.to(self._sums.device)

        word_index = (sampled != PAD).flatten().nonzero().squeeze(1)
        weights = advantage.flatten()[word_index // sampled.shape[-1]].to(tokens.device)
        word_index, tokens = word_index.to(tokens.device), tokens[:, : self.samples]
        sources = torch.cat([torch.full_like(tokens[..., :1], BOS), tokens[..., :-1]], dim=-1)
        logits = self._logits(model, context, sources, word_index)
        nll, _ = word_losses(logits, tokens.flatten()[word_index])
        total = (weights.to(nll.dtype) * nll).sum()
        loss = Loss(total, len(word_index), {"nll": nll.detach().sum()})
        for initial in self._initial:
            # once: to its device and precision
            initial.to(next(model.parameters()))
            with torch.no_grad():
                before = self._logits(initial, context, sources, word_index)
            loss = loss.add_term(self.kl_weight, divergence(logits, before), "kl")
        return loss

    def _in_words(self, tokens: Tensor) -> Tensor:
        """The same captions `[B, S, T]` with ids of words where the model's are pieces."""
        if self._words is self._vocabulary:
            return tokens
        captions = [
            self._words.encode(self._vocabulary.words_of(row)) + [EOS] * (EOS in row)
            for row in tokens.flatten(0, 1).tolist()
        ]
        # beside one token, as all may be empty
        rows = [torch.tensor(ids, dtype=torch.long) for ids in ([PAD], *captions)]
        padded = pad_sequence(rows, batch_first=True, padding_value=PAD)[1:]
        return padded.unflatten(0, tokens.shape[:2])

    def _logits(
        self, model: Captioner, context: ContextSet, sources: Tensor, word_index: Tensor
    ) -> Tensor:
        """Logits of the sampling distribution, `[W, V]`."""
        logits = model.readout(model(context, sources).hidden.flatten(0, 2)[word_index])
        return mask_tokens(logits, FORBIDDEN) / self.temperature

    def _baseline(self, rewards: Tensor) -> Tensor:
        """The baseline of each sample, `[B, S]` or `[B, 1]`."""
        if self.baseline == "none":
            return torch.zeros_like(rewards[:, :1])
        if self.baseline == "greedy":
            return rewards[:, self.samples :]
        mean = rewards.mean(1, keepdim=True)
        if self.baseline == "mean":
            return mean
        return (self.samples * mean - rewards) / (self.samples - 1)

    def on_optimizer_step(self, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Return statistics of the optimiser step's samples on all processes."""
        *sums, captions = total(self._sums).unbind()
        reward, squares, advantages, ended, length = (value / captions for value in sums)
        self._sums.zero_()
        return {
            "reward": reward,
            "reward deviation": (squares - reward.square()).clamp(min=0).sqrt(),
            "advantage deviation": advantages.sqrt(),
            "ended": 100 * ended,
            "sampled length": length,
        }


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p, q) in nats of logits `[W, V]` over the ids that can be drawn, summed over positions."""
    possible = [word for word in range(logits.shape[-1]) if word not in FORBIDDEN]
    precision = torch.promote_types(logits.dtype, torch.float32)
    p, q = (scores[:, possible].log_softmax(-1, dtype=precision) for scores in (logits, others))
    return (p.exp() * (p - q)).sum()
