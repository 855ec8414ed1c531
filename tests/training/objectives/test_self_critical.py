"""The gradient of the expected reward, computed exactly over all captions of a vocabulary of two
words.

Captions have at most T = 2 tokens, the end included: 7 of them. Their probabilities are followed
here word by word.
"""

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from models.captioners import captioner
from torch.testing import assert_close

from captioning.backbones.context import ContextSet
from captioning.data.batch import collate
from captioning.data.example import Example, Reference
from captioning.data.vocabulary import Vocabulary
from captioning.tokens import BOS, EOS, PAD
from captioning.training.objectives import BatchRandom, CrossEntropy, SelfCritical, TrainingData
from captioning.training.objectives.rewards import Reward

from ..world import equal, gradient, normal, randomised

L, D, T, S = 3, 5, 2, 3
VOCABULARY = Vocabulary(["dog", "runs"])
V = len(VOCABULARY)
DOG, RUNS = 4, 5
CAPTIONS = [
    (*words, *end)
    for n in range(T + 1)
    for words in itertools.product((DOG, RUNS), repeat=n)
    for end in ([(EOS,)] if n < T else [()])
]
REFERENCES = [["dog runs", "dog dog runs runs"], ["runs runs"], ["dog", "runs dog"]]
CUT, ENDED, EMPTY = (DOG, RUNS), (RUNS, EOS), (EOS,)
TRANSFORMER = {"d_model": 4, "heads": 2, "d_ff": 3, "encoder.layers": 1, "decoder_layers": 1}
MODELS = {
    "sat_soft": {"d_embed": 2, "d_hidden": 3, "score.d_attention": 2},
    "spatial_transformer": TRANSFORMER | {"max_tokens": T},
}
NETWORKS = [("sat_soft", 1.0), ("sat_soft", 0.4), ("spatial_transformer", 1.0)]


def network(name, **settings):
    model = captioner(name, V, D, (1, L), **({"dropout": 0.0} | MODELS[name] | settings))
    return randomised(model.double().train(), 0.8)


def images(count=1):
    return ContextSet(normal(count, L, D, seed=4), (1, L))


def objective(model=None, **settings):
    """Of the references; held near `model` as it is now, where `kl_weight` says so."""
    defaults = {"reward": Reward(bleu4=0.3), "samples": S, "max_length": T}
    found = SelfCritical(**(defaults | settings))
    examples = []
    for i, texts in enumerate(REFERENCES):
        references = tuple(Reference(text, tuple(text.split())) for text in texts)
        examples.append(Example(i, Path(), references))
    found.prepare(TrainingData(examples, VOCABULARY), model)
    return found


def tokens(captions):
    """`[1, S, T]`."""
    return torch.tensor([[[*caption, *[PAD] * (T - len(caption))] for caption in captions]])


def log_prob(model, caption, temperature=1.0):
    """Of the first image's caption, word by word, among the words that can be drawn."""
    state, token = model.start(images(), 1), BOS
    total = torch.zeros((), dtype=torch.float64)
    for chosen in caption:
        step = model.step(torch.tensor([[token]]), state)
        logits = step.logits[0, 0] / temperature
        total = total + logits[chosen] - logits[[EOS, DOG, RUNS]].exp().sum().log()
        state, token = step.state, chosen
    return total


def padded(captions):
    return torch.nn.functional.pad(captions, (0, T - captions.shape[-1]))


def random(*index, step=2):
    return BatchRandom(1, step, torch.tensor(index))


def scored(found, model, captions):
    return found.score(model, images(), tokens(captions), torch.tensor([0]))


def rewards(found, captions):
    return torch.from_numpy(found.reward(np.zeros(1, int), tokens(captions).numpy()))[0]


@cache
def exact(name, temperature=1.0):
    """p of all captions, and the gradient of -E[r]."""
    model = network(name)
    logs = [log_prob(model, caption, temperature) for caption in CAPTIONS]
    probabilities = torch.stack(logs).exp()
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-12)
    expected = probabilities @ rewards(objective(), CAPTIONS)
    return probabilities.detach(), gradient(-expected, model)


@cache
def estimates(name, baseline, temperature=1.0):
    """Of every set of S captions its probability, and the estimate for one caption, `[84,
    parameters]`.
    """
    model, found = network(name), objective(baseline=baseline, temperature=temperature)
    greedy = padded(found.draw(model, images(), random(0))[:, S:])
    rows, weights = [], []
    for drawn in itertools.combinations_with_replacement(range(len(CAPTIONS)), S):
        captions = torch.cat([tokens([CAPTIONS[i] for i in drawn]), greedy], dim=1)
        total = found.score(model, images(), captions, torch.tensor([0])).total
        rows.append(gradient(total, model) / S)
        orders = len(set(itertools.permutations(drawn)))
        weights.append(orders * exact(name, temperature)[0][list(drawn)].prod())
    return torch.stack(weights), torch.stack(rows)


@pytest.mark.parametrize("baseline", ["others", "greedy", "mean", "none"])
@pytest.mark.parametrize("name, temperature", NETWORKS)
def test_the_expectation_of_the_estimate_is_the_gradient(name, temperature, baseline):
    weights, found = estimates(name, baseline, temperature)
    expected = exact(name, temperature)[1]
    share = (S - 1) / S if baseline == "mean" else 1
    assert expected.norm() > 0.05
    equal(weights @ found, share * expected)
    if baseline == "others":  # they lessen the variance
        none = estimates(name, "none", temperature)[1]
        spread = weights @ (found - weights @ found).square().sum(dim=1)
        assert spread < weights @ (none - weights @ none).square().sum(dim=1)


@pytest.mark.parametrize("name, temperature", NETWORKS)
def test_captions_are_drawn_with_their_probabilities(name, temperature):
    """Of 20,000 samples none is seen more than 4 standard deviations too often or too rarely."""
    model, count = network(name), 20_000
    drawn = objective(samples=count, temperature=temperature).draw(model, images(), random(0))
    rows = padded(drawn[0])
    seen = torch.stack([(rows == one).all(dim=-1).sum() for one in tokens(CAPTIONS)[0]])
    expected = exact(name, temperature)[0]
    assert seen.sum() == count
    assert ((seen / count - expected).abs() < 4 * (expected * (1 - expected) / count).sqrt()).all()


def test_draws_belong_to_images_and_are_made_without_dropout():
    """Captions are scored with it (D)."""
    found, context = objective(samples=7), images(3)
    dropped, whole = network("sat_soft", dropout=0.5), network("sat_soft")
    drawn = padded(found.draw(dropped, context, random(2, 0, 1)))
    assert dropped.training
    assert torch.equal(drawn, padded(found.draw(whole, context, random(2, 0, 1))))
    assert not torch.equal(drawn, padded(found.draw(whole, context, random(2, 0, 1, step=3))))
    for row, index in enumerate([2, 0, 1]):
        alone = ContextSet(context.vectors[[row]], (1, L))
        assert torch.equal(padded(found.draw(whole, alone, random(index))), drawn[[row]])
    captions, losses = drawn[0, :S].tolist(), []
    for weight in (0.0, 0.7):  # the first model is in evaluation mode and draws no random numbers
        torch.manual_seed(1)
        losses.append(scored(objective(dropped, kl_weight=weight), dropped, captions))
    free, held = losses
    assert free.total != scored(objective(), whole, captions).total
    assert_close(held.total, free.total + 0.7 * held.terms["kl"])
    assert held.terms["kl"] > 0
    assert dropped.training


def test_cross_entropy_is_added_by_its_weight_and_alone_in_evaluation():
    batch = collate([0], images().vectors, [[[DOG, RUNS]]])
    given = network("sat_soft"), images(), batch, random(0)
    plain, mixed = (objective(xe_weight=weight)(*given) for weight in (0, 0.5))
    likelihood = CrossEntropy()(*given)
    assert_close(mixed.total, plain.total + 0.5 * likelihood.total)
    assert mixed.words == plain.words
    evaluated = objective(xe_weight=0.5).eval()(*given)
    assert evaluated.total == evaluated.terms["nll"] == likelihood.total


def brute_divergence(model, before, captions, temperature):
    """Word by word of each caption, the sum over what can be drawn of p log(p / p_0)."""
    total = torch.zeros((), dtype=torch.float64)
    for caption in captions:
        for t, word in itertools.product(range(len(caption)), (EOS, DOG, RUNS)):
            start = caption[:t]
            p, q = (
                log_prob(network, [*start, word], temperature)
                - log_prob(network, start, temperature)
                for network in (model, before)
            )
            total = total + p.exp() * (p - q)
    return total


@pytest.mark.parametrize("name, temperature", NETWORKS)
def test_the_parallel_pass_and_the_divergence_from_the_first_model_are_those_of_each_word(
    name, temperature
):
    """With its gradient; of a cut caption, one that has ended, and one that is nothing but its
    end.
    """
    model, before, captions = network(name), network(name), (CUT, ENDED, EMPTY)
    settings = {"baseline": "none", "temperature": temperature}
    found = [objective(model, kl_weight=weight, **settings) for weight in (0.0, 0.7)]
    assert list(found[1].parameters()) == []  # nothing moves, saves or trains the copy
    assert found[1].state_dict().keys() == found[0].state_dict().keys()
    for i, parameter in enumerate(model.parameters()):  # after some training
        parameter.data.add_(normal(*parameter.shape, seed=i), alpha=0.3)
    free, held = (scored(each, model, captions) for each in found)
    each = torch.stack([log_prob(model, caption, temperature) for caption in captions])
    equal(free.terms["nll"], -each.sum().detach())
    equal(free.total, -(rewards(found[0], captions) * each).sum())
    expected = brute_divergence(model, before, captions, temperature)
    assert expected > 0.05
    assert (held.words, free.words, set(free.terms)) == (5, 5, {"nll"})
    equal(held.terms["kl"], expected.detach())
    equal(held.total - free.total, 0.7 * expected)
    slope = gradient(held.total, model) - gradient(free.total, model)
    assert slope.norm() > 0.01
    equal(slope, gradient(0.7 * expected, model))


def test_origin_is_signed_as_sacre_eos_asks_with_a_digest_of_frequencies():
    found = objective(samples=5, reward=Reward())
    other = objective(reward_eos=False, baseline="greedy")
    signed = [each.provenance()["self_critical"] for each in (found, other)]
    assert signed == [
        "STANDARD_wInit+Cider-D[n4,s6.0]+average[nspi5]+1.0.0",
        "NO<EOS>_woInit+Cider-D[n4,s6.0]+0.3*BLEU[n4]+greedy+1.0.0",
    ]
    assert len({each.provenance()["document_frequencies"] for each in (found, other)}) == 2


def test_rewards_and_baselines_that_teach_nothing_are_refused():
    with pytest.raises(ValueError, match="cider=0"):
        Reward(cider=0.0)
    with pytest.raises(ValueError, match="samples=1"):
        SelfCritical(reward=Reward(), samples=1)


def test_what_is_logged_is_of_all_samples_of_the_step():
    found, model = objective(samples=2), network("sat_soft")
    captions = [(DOG, EOS), (RUNS, RUNS)], [(EOS,), (DOG, EOS)]
    for pair in captions:
        scored(found, model, pair)
    every = torch.cat([rewards(found, pair) for pair in captions])
    logged = {name: value.item() for name, value in found.on_optimizer_step(torch.clone).items()}
    assert logged["reward"] == pytest.approx(every.mean().item())
    assert logged["reward deviation"] == pytest.approx(every.std(correction=0).item())
    assert logged["ended"] == 75
    assert logged["sampled length"] == 1
    difference = every[::2] - every[1::2]
    assert logged["advantage deviation"] == pytest.approx(difference.square().mean().sqrt().item())
    scored(found, model, captions[0])
    assert found.on_optimizer_step(torch.clone)["reward"] == rewards(found, captions[0]).mean()
