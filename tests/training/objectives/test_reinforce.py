"""The gradient of hard attention, computed exactly over all paths of a network so small that they
can be counted.

L = 3 locations, captions of at most T = 3 steps: 27 paths. The network is followed here by loops
over its equations.
"""

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from models.captioners import captioner, led
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.data.batch import collate
from captioning.tokens import BOS, EOS
from captioning.training.objectives import BatchRandom, Reinforce

from ..world import equal, gradient, normal, randomised

L, D, V = 3, 5, 13
WORDS = [4, 9]  # T = 3 with EOS
PATHS = list(itertools.product(range(L), repeat=3))
CAPTIONS = [[[5, 6], [8]], [], [[], [9, 4]], [[7]]]
"""Of four images; unequal lengths, too few captions, none at all."""


def network(gate=True, temperature=1.0, cell="lstm"):
    sizes = {"d_embed": 7, "d_hidden": 2, "score.d_attention": 11, "dropout": 0.0}
    choices = f"sat_soft model/cell={cell} model/attention={'gated' if gate else 'soft'}"
    model = captioner(choices, V, D, (1, L), **sizes, **{"attention.temperature": temperature})
    return randomised(model.double(), 0.7)


def images(count):
    return normal(count, L, D, seed=4)


def one_caption():
    return collate([0], images(1), [[WORDS]])


def many_captions():
    return collate(range(4), images(4), CAPTIONS)


def some_paths(samples=1):
    """`[B, N S, C]` for `many_captions`."""
    return torch.randint(L, (4, 2 * samples, 3), generator=torch.Generator().manual_seed(0))


@dataclass
class Walk:
    """One caption along one path."""

    likelihoods: Tensor  # `[T]`, log p of each word
    uniform: Tensor  # `[T]`, the mean of log p over all words
    choices: Tensor  # `[T]`, log alpha_t(s_t); nothing where the context is the expected one
    alpha: Tensor  # `[T, L]`


def walk(model, image, words, path):
    """Eq. 4-9 for one caption, around the cell, whose own equations have tests of theirs; no path:
    the expectation.
    """
    score, gate, head = model.attention.score, model.attention.gate, model.head
    mean = image.mean(dim=0)
    memory = tuple(initial(mean)[None, None] for initial in model.initial.maps)
    likelihoods, uniform, choices, alphas = [], [], [], []
    for t, (word, target) in enumerate(zip([BOS, *words], [*words, EOS], strict=True)):
        embedded = model.embed.weight[word]
        x = model.cell.words(embedded[None, None])
        asked, memory = model.cell.compute_query(x, memory)
        query = asked[0, 0]
        keys = [score.context(a) + score.query(query) for a in image]
        e = torch.stack([score.weight.dot(key.tanh()) for key in keys])
        e = e / model.attention.temperature
        alpha = e.exp() / e.exp().sum()
        z = alpha @ image if path is None else image[path[t]]
        if gate is not None:
            z = gate(query).sigmoid() * z
        memory = model.cell(x, z[None, None], memory)
        logits = head.output(embedded + head.hidden(memory[0][0, 0]) + head.context(z))
        log_probs = logits - logits.exp().sum().log()
        likelihoods.append(log_probs[target])
        uniform.append(sum(log_probs) / V)
        alphas.append(alpha)
        if path is not None:
            choices.append(alpha[path[t]].log())
    parts = likelihoods, uniform, choices or [mean.new_zeros(())], alphas
    return Walk(*map(torch.stack, parts))


@cache
def exact(gate=True, cell="lstm"):
    """p(s|a) of all paths of `one_caption`, and the gradient of -sum_s p(s|a) log p(y|s,a).

    The latter by automatic differentiation of the sum itself (Eq. 10).
    """
    model = network(gate, cell=cell)
    walks = [walk(model, images(1)[0], WORDS, path) for path in PATHS]
    weights = torch.stack([w.choices.sum().exp() for w in walks])
    likelihoods = torch.stack([w.likelihoods.sum() for w in walks])
    return weights.detach(), gradient(-weights @ likelihoods, model)


def surrogate(
    found,
    reinforce=1.0,
    entropy=0.0,
    baseline=0.0,
    label_smoothing=0.0,
    doubly_stochastic=0.0,
    reward_to_go=False,
):
    """The loss of one sampled caption; its gradient is Eq. 12 before the sum over samples."""
    likelihoods = found.likelihoods.tolist()
    loss = -((1 - label_smoothing) * found.likelihoods + label_smoothing * found.uniform).sum()
    for t, choice in enumerate(found.choices):
        rewarded = likelihoods[t:] if reward_to_go else likelihoods
        expected = baseline[t] if reward_to_go else baseline
        loss = loss - reinforce * (sum(rewarded) - expected) * choice
    for alpha in found.alpha.flatten():
        loss = loss + entropy * alpha * alpha.log()
    return loss + doubly_stochastic * sum((1 - sum(seen)) ** 2 for seen in found.alpha.T)


class Led:
    """The network led along given paths, a note kept of the images that it was told to sample."""

    def __init__(self, model, locations=None):
        self.model, self.locations = model, locations
        self.readout = model.readout

    def __call__(self, context, tokens, need_weights=False, sampled=None, uniform=None):
        self.sampled = sampled
        path = uniform if self.locations is None else led(self.model, self.locations)
        self.output = self.model(context, tokens, need_weights, sampled, path)
        return self.output


def loss(objective, model, given, step=0):
    context = ContextSet(given.inputs, (1, L))
    return objective(model, context, given, BatchRandom(0, step, given.index))


def sampling(baseline=0.0, **settings):
    """The bare estimator: every image sampled, no entropy."""
    found = Reinforce(**({"sample_probability": 1.0, "entropy": 0.0} | settings))
    found.baseline.copy_(torch.tensor(baseline, dtype=torch.float64))
    return found


def along(objective, model, path):
    """The objective's gradient for `one_caption` along one path."""
    found = loss(objective, Led(model, torch.tensor(path)[None, None]), one_caption())
    return gradient(found.total, model)


def every_gradient(objective, **changes):
    """The objective's gradients for `one_caption` along each of all paths, `[S, P]`."""
    model = network(**changes)
    return torch.stack([along(objective, model, path) for path in PATHS])


@pytest.mark.parametrize(
    "changes, reward_to_go, baseline",
    [
        ({}, False, 40.0),
        ({"gate": False}, False, -6.5),
        *(({"cell": cell}, False, -6.5) for cell in ("gru", "up_down", "conditional_gru")),
        ({}, True, (0.0, 0.0, 0.0)),
        ({}, True, (30.0, -20.0, 10.0)),
    ],
)
def test_averaged_over_all_paths_it_is_the_gradient_of_the_lower_bound(
    changes, reward_to_go, baseline
):
    weights, expected = exact(**changes)
    assert weights.sum().item() == pytest.approx(1, rel=1e-12)
    assert weights.max() > 10 * weights.min()
    assert expected.norm() > 1
    objective = sampling(baseline, reward_to_go=reward_to_go, max_words=2)
    equal(weights @ every_gradient(objective, **changes), expected)


def test_drawn_paths_estimate_the_gradient():
    """The mean of S drawn gradients is away from the exact one by about the root of the variance
    over S.
    """
    model, samples = network(), 2000
    found = gradient(loss(sampling(samples=samples), model, one_caption()).total, model)
    (weights, expected), gradients = exact(), every_gradient(sampling())
    variance = weights @ (gradients - weights @ gradients).square().sum(dim=1)
    assert 0.1 < (found - expected).square().sum() / (variance / samples) < 4


@cache
def steps():
    """A step of training for each outcome of the four images' coins."""
    found = {}
    model, given = network(), collate(range(4), images(4), [[[]]] * 4)
    for step in range(200):
        led = Led(model)
        loss(Reinforce(), led, given, step=step)
        found.setdefault(tuple(led.sampled.tolist()), step)
    return found


ALL = (True,) * 4


@pytest.mark.parametrize(
    "settings, sampled, samples, baseline",
    [
        ({"reinforce": 1.3, "entropy": 0.2, "label_smoothing": 0.1}, ALL, 1, -4.0),
        ({"entropy": 0.2, "reward_to_go": True}, ALL, 3, [-4.0, -3.0, 2.0]),
        ({"reinforce": 1.3, "entropy": 0.2}, (True, True, False, False), 1, -4.0),
        ({"entropy": 0.0}, (False, True, False, True), 1, -4.0),
        ({"entropy": 0.0, "doubly_stochastic": 0.7}, (True, False, False, True), 2, 0.0),
    ],
)
def test_captions_and_samples_are_as_if_each_came_alone(settings, sampled, samples, baseline):
    """Images that are not sampled have the loss of soft attention; Eq. 14 is of alpha, not of what
    is drawn from it.

    The advantage is a constant and never smoothed; log p(s|a) and the entropy depend on it through
    h too.
    """
    model, locations, parts, words = network(temperature=0.6), some_paths(samples), [], []
    for b, image in enumerate(images(4)):
        policy = {} if sampled[b] else {"reinforce": 0.0, "entropy": 0.0}
        for n, caption in enumerate(CAPTIONS[b]):
            for row in locations[b, n * samples : (n + 1) * samples].tolist():
                found = walk(model, image, caption, row[: len(caption) + 1] if sampled[b] else None)
                parts.append(surrogate(found, baseline=baseline, **(settings | policy)) / samples)
                words.append(-found.likelihoods.sum() / samples)
    settings = {"sample_probability": 0.5, "samples": samples, "max_words": 2} | settings
    objective, led = sampling(baseline, **settings), Led(model, locations)
    found = loss(objective, led, many_captions(), step=steps()[sampled])
    assert len(parts) == 5 * samples
    assert found.total.item() == pytest.approx(sum(parts).item(), rel=1e-12)
    equal(gradient(found.total, model), gradient(sum(parts), model))
    assert found.terms["nll"].item() == pytest.approx(sum(words).item(), rel=1e-12)
    assert set(found.terms) == {"nll", *(settings.keys() & {"doubly_stochastic"})}
    assert not any(term.requires_grad for term in found.terms.values())
    drawn = led.output.policy.log_prob != 0  # all captions and words of an image share its coin
    assert torch.equal(drawn, torch.tensor(sampled)[:, None, None].expand_as(drawn))


@pytest.mark.parametrize(
    "reward_to_go, before", [(False, [-9.0]), (True, [-9.0, -7.0, -5.0, -3.0])]
)
def test_baseline_is_one_mean_of_batches_samples_and_processes(reward_to_go, before):
    """Of sampled captions and their steps alone: no caption has a fourth step, whose baseline
    stays.
    """
    model, locations, both = network(), some_paths(2), torch.tensor([[[0, 2, 1], [1, 1, 0]]])
    settings = {"max_words": 3, "samples": 2, "sample_probability": 0.5, "normalise": True}
    objective = sampling(before, reward_to_go=reward_to_go, **settings)
    step = steps()[True, True, False, False]
    loss(objective, Led(model, locations), many_captions(), step=step)
    loss(objective, Led(model, both), one_caption(), step=step)
    assert objective.baseline.tolist() == before  # until the optimiser's next step
    (long, short), first, alone = CAPTIONS[0], images(4)[0], images(1)[0]
    captions = [(first, long)] * 2 + [(first, short)] * 2 + [(alone, WORDS)] * 2
    paths, seen = torch.cat([locations[0], both[0]]).tolist(), []
    for (image, words), path in zip(captions, paths, strict=True):
        seen.append(walk(model, image, words, path[: len(words) + 1]).likelihoods.tolist())
    others = torch.zeros(3, len(before))
    # two more samples, of -12 and -18, in a process of its own
    others[:, 0] = torch.tensor([-30.0, 2.0, 468.0])
    logged = objective.on_optimizer_step(lambda sums: sums + others)
    for t, old in enumerate(before):
        rewards = [sum(row[t:]) for row in seen if len(row) > t] + [-12.0, -18.0] * (t == 0)
        mean = np.mean(rewards) if rewards else old
        variance = np.var(rewards) if rewards else 0
        assert objective.baseline[t].item() == pytest.approx(0.9 * old + 0.1 * mean, rel=1e-12)
        assert objective.variance[t].item() == pytest.approx(0.1 * variance, rel=1e-9)
    assert logged["baseline"].item() == objective.baseline[0].item()
    moved = objective.state_dict()
    assert list(moved) == ["baseline", "variance"]
    objective.on_optimizer_step(torch.clone)  # what has come is counted once
    assert objective.state_dict() == {name: pytest.approx(value) for name, value in moved.items()}


@pytest.mark.parametrize("before, divisor", [(0.0, 1.0), (0.25, 1.0), (9.0, 3.0)])
def test_the_advantage_is_divided_by_a_running_deviation_above_one(before, divisor):
    model, path = network(), (0, 2, 1)
    objective = sampling(-6.5, normalise=True)
    objective.variance.fill_(before)
    found = along(objective, model, path)
    walked = walk(model, images(1)[0], WORDS, path)
    equal(found, gradient(surrogate(walked, 1 / divisor, baseline=-6.5), model))


def test_evaluation_is_the_likelihood_under_the_expected_context():
    model, given, smoothing = network(), many_captions(), 0.3
    settings = {"doubly_stochastic": 1.0, "samples": 3, "entropy": 0.5}
    objective = sampling(label_smoothing=smoothing, **settings).eval()
    soft = [walk(model, images(4)[b], words, None) for b in range(4) for words in CAPTIONS[b]]
    led = Led(model)
    found = loss(objective, led, given)
    assert led.sampled is None
    likelihood = sum(w.likelihoods.sum().item() for w in soft)
    assert found.terms["nll"].item() == pytest.approx(-likelihood, rel=1e-12)
    smoothed = sum(surrogate(w, 0.0, label_smoothing=smoothing).item() for w in soft)
    assert found.total.item() == pytest.approx(smoothed, rel=1e-12)
    assert set(found.terms) == {"nll"}
    objective.on_optimizer_step(torch.clone)
    assert objective.baseline.tolist() == [0.0]
