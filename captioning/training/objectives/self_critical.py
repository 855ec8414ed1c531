"""Self-critical training: what is measured is what is maximised, by samples of whole captions.

Rennie et al., "Self-critical Sequence Training for Image Captioning", CVPR 2017; the baseline of the other samples and
the pitfalls: Luo, "A Better Variant of Self-Critical Sequence Training", 2020.

B images, N references per image in a batch, S samples per image, T tokens of the longest, W real words of the samples.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, cast

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.config.types import Length, NotNegative, Positive, Samples, validated
from captioning.decoding import FORBIDDEN
from captioning.decoding.filters import without
from captioning.decoding.generate import follow
from captioning.decoding.sampling import draw_any
from captioning.models.protocol import Captioner
from captioning.tokens import BOS, EOS, PAD
from captioning.training.objectives.draws import Draws
from captioning.training.objectives.loss import Loss, Objective, likelihood, word_losses
from captioning.training.objectives.task import Task
from captioning.training.rewards import Reward

Baseline = Literal["others", "greedy", "mean", "none"]
MOMENTS = ("reward", "squared reward", "squared advantage", "ended", "length", "captions")


class SelfCritical(Objective):
    """A surrogate whose gradient estimates that of the expected reward of sampled captions.

    Per image, with samples w^1 .. w^S from p(w | image) at `temperature`, without PAD, BOS and UNK:

        - sum_s (r(w^s) - b^s) sum_t log p(w_t^s | w_<t^s, image)

    over the words and the first EOS; a caption cut at `max_length` has no term for its end. Rewards and baselines are
    constants. The captions are drawn and judged by the network as it is tested, and scored by one parallel pass in
    training mode (D): with dropout the two distributions differ, and the estimate is biased by that; without it is
    not. A caption's loss is divided by the number of sampled words of all processes, as that of every objective.

    `kl_weight` times the divergence from the model p_0 that training began from holds it near that, so that the reward
    does not buy what photographs unlike the training set are described with:

        kl_weight sum_s sum_t KL(p(. | w_<t^s, image) || p_0(. | w_<t^s, image))

    over all words that can be drawn, along the sampled captions as they are: no gradient through the draws (D). p_0 is
    the model as it is tested, and p that of the parallel pass: with dropout the two differ at the first step (D). A
    backbone that is trained moves the photographs that both see. p_0 is no state: a run that goes on is given it again.

    Args:
        reward: of a caption.
        samples: S.
        baseline: b^s. `others` is the mean reward of the image's other samples (Luo), `greedy` that of its greedy
            caption (Rennie), `mean` that of all samples, which is `others` times (S - 1) / S, and `none` is 0.
        eos: the end is a token of the reward's n-grams. Without it captions end in fragments: for that experiment.
        xe_weight: of the cross-entropy of the references, in the same sum.
        kl_weight: of the divergence from the model that training began from; 0 makes no copy of that.
        max_length: the largest number of sampled tokens, EOS included.
    """

    _sums: Tensor

    @validated
    def __init__(
        self,
        *,
        reward: Reward,
        samples: Samples = 5,
        baseline: Baseline = "others",
        eos: bool = True,
        xe_weight: NotNegative = 0.0,
        kl_weight: NotNegative = 0.0,
        temperature: Positive = 1.0,
        max_length: Length = 15,
    ) -> None:
        super().__init__()
        if samples < 2 and baseline in ("others", "mean"):
            raise ValueError(f"samples={samples} leaves baseline={baseline} nothing to learn from; draw 2 or more")
        self.reward, self.samples, self.eos = reward, samples, eos
        self.baseline: Baseline = baseline
        self.xe_weight, self.kl_weight = xe_weight, kl_weight
        self.temperature, self.max_length = temperature, max_length
        self.needs_initial = kl_weight > 0
        self._initial: tuple[nn.Module, ...] = ()  # in a tuple it is no part: not saved, counted or averaged
        # of the samples of the optimiser step's batches so far
        self.register_buffer("_sums", torch.zeros(len(MOMENTS), dtype=torch.float64), persistent=False)

    def prepare(self, task: Task, model: nn.Module) -> None:
        """The reward's references and document frequencies, and where it is needed a copy of the model."""
        self.reward.prepare(task.references(), len(task.vocabulary), self.eos)
        if self.needs_initial:
            self._initial = (copy.deepcopy(model).eval().requires_grad_(False),)

    def origin(self) -> dict[str, str]:
        """The signature that Hu et al. 2023 (SacreEOS) ask for, and the digest of the document frequencies."""
        mode = "STANDARD_wInit" if self.eos else "NO<EOS>_woInit"
        base = self.baseline if self.baseline in ("greedy", "none") else f"average[nspi{self.samples}]"
        signature = f"{mode}+{self.reward.signature}+{base}+1.0.0"
        return {"self_critical": signature, "document_frequencies": self.reward.frequencies.digest}

    def get_extra_state(self) -> Tensor:
        """The document frequencies, which a checkpoint holds."""
        return torch.from_numpy(self.reward.frequencies.table)

    def set_extra_state(self, state: Tensor) -> None:
        """Goes on with a checkpoint.

        Raises:
            ValueError: it was rewarded by other document frequencies.
        """
        if not torch.equal(state, self.get_extra_state()):
            raise ValueError("its rewards had other document frequencies than these training captions give")

    def forward(
        self, model: Captioner, context: ContextSet, sources: Tensor, targets: Tensor, word_index: Tensor, draws: Draws
    ) -> Loss:
        """See `Objective`; `nll` is that of the samples, in evaluation that of the references."""
        if not self.training:
            return likelihood(model, context, sources, targets, word_index)
        loss = self.score(model, context, self.draw(model, context, draws), draws.index)
        if self.xe_weight:
            references = likelihood(model, context, sources, targets, word_index)
            loss = Loss(loss.total + self.xe_weight * references.total, loss.words, loss.terms)
        return loss

    def draw(self, model: Captioner, context: ContextSet, draws: Draws) -> Tensor:
        """`[B, S, T]`, PAD behind the end; under `greedy` one more, the greedy caption, `[B, S + 1, T]`."""
        uniform = draws.uniform(self.samples, self.max_length)

        def choose(words: Tensor, t: int) -> Tensor:
            drawn = draw_any(words[:, : self.samples] / self.temperature, uniform[..., t])
            return torch.cat([drawn, words[:, self.samples :].argmax(dim=-1)], dim=1)

        with _evaluating(cast(nn.Module, model)):
            n = self.samples + (self.baseline == "greedy")
            return follow(model, context, n, choose, self.max_length, FORBIDDEN).tokens

    def score(self, model: Captioner, context: ContextSet, tokens: Tensor, index: Tensor) -> Loss:
        """The loss of captions that `draw` gave.

        Args:
            model: in training mode.
            context: B images.
            tokens: as `draw` gives them.
            index: `[B]`, the images' positions in the training set.
        """
        found = tokens.cpu()  # once: all that follows is known without waiting for the device
        rewards = torch.from_numpy(self.reward(index.cpu().numpy(), found.numpy()))
        sampled = found[:, : self.samples]
        advantage = rewards[:, : self.samples] - self._baselines(rewards)
        self._note(rewards[:, : self.samples], advantage, sampled)

        word_index = (sampled != PAD).flatten().nonzero().squeeze(1)
        weights = advantage.flatten()[word_index // sampled.shape[-1]]
        word_index, weights = word_index.to(tokens.device), weights.to(tokens.device)
        tokens = tokens[:, : self.samples]
        sources = torch.cat([torch.full_like(tokens[..., :1], BOS), tokens[..., :-1]], dim=-1)
        logits = self._logits(model, context, sources, word_index)
        nll, _ = word_losses(logits, tokens.flatten()[word_index], 0.0)
        total, terms = (weights.to(nll.dtype) * nll).sum(), {"nll": nll.detach().sum()}
        for initial in self._initial:
            initial.to(next(cast(nn.Module, model).parameters()))  # once: to its device and precision
            with torch.no_grad():
                before = self._logits(cast(Captioner, initial), context, sources, word_index)
            terms["kl"] = divergence(logits, before)
            total = total + self.kl_weight * terms["kl"]
        return Loss(total, len(word_index), {name: term.detach() for name, term in terms.items()})

    def _logits(self, model: Captioner, context: ContextSet, sources: Tensor, word_index: Tensor) -> Tensor:
        """Those of the distribution that is drawn from, `[W, V]`."""
        logits = model.readout(model(context, sources).hidden.flatten(0, 2)[word_index])
        return without(logits, FORBIDDEN) / self.temperature  # what is never drawn has no probability

    def _baselines(self, rewards: Tensor) -> Tensor:
        """Of each sample, `[B, S]` or `[B, 1]`."""
        if self.baseline == "none":
            return torch.zeros_like(rewards[:, :1])
        if self.baseline == "greedy":
            return rewards[:, self.samples :]
        mean = rewards.mean(dim=1, keepdim=True)
        return mean if self.baseline == "mean" else (self.samples * mean - rewards) / (self.samples - 1)

    def _note(self, rewards: Tensor, advantage: Tensor, sampled: Tensor) -> None:
        """Adds the batch to the sums of the optimiser step."""
        ended, words = (sampled == EOS).sum(), (sampled > EOS).sum()
        moments = (rewards, rewards.square(), advantage.square(), ended, words, torch.ones_like(rewards))
        self._sums += torch.stack([moment.sum().double() for moment in moments]).to(self._sums.device)

    def end_step(self, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Logs rewards and captions of the optimiser step's samples, of all processes; forgets them."""
        *sums, captions = total(self._sums).unbind()
        reward, squares, advantages, ended, length = (each / captions for each in sums)
        self._sums.zero_()
        return {
            "reward": reward,
            "reward deviation": (squares - reward.square()).clamp(min=0).sqrt(),
            "advantage deviation": advantages.sqrt(),
            "ended": 100 * ended,
            "sampled length": length,
        }


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p || q) in nats, summed over W positions.

    Args:
        logits: of p, `[W, V]`; minus infinity at the ids that are never drawn, which add nothing.
        others: of q, likewise.
    """
    possible = [word for word in range(logits.shape[-1]) if word not in FORBIDDEN]
    precision = torch.promote_types(logits.dtype, torch.float32)
    p, q = (each[:, possible].log_softmax(dim=-1, dtype=precision) for each in (logits, others))
    return (p.exp() * (p - q)).sum()


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The model as it is tested; afterwards every part is in the mode that it was in."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
