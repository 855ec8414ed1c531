"""Cross-entropy against loops and torch's own, Eq. 14 by loops, and scheduled sampling followed
step by step.
"""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from captioning.backbones.context import ContextSet
from captioning.data.batch import collate
from captioning.tokens import BOS, EOS, UNK
from captioning.training.objectives import BatchRandom, CrossEntropy
from captioning.training.objectives.cross_entropy import scheduled_inputs

from ..world import GRID, batch, equal, randomised, show_attend_tell, transformer

CAPTIONS = [[[5, 6, 7], [8]], [], [[9, 4]]]
"""Of three images; the second has none."""
WORDS = [(b, n, words) for b, rows in enumerate(CAPTIONS) for n, words in enumerate(rows)]


def loss(model, given, context, **settings):
    return CrossEntropy(**settings)(model, context, given, BatchRandom(0, 0, given.index))


def test_bfloat16_logits_are_summed_in_float32():
    model, given = network("recurrent").bfloat16(), batch(0, 5)
    context = ContextSet(given.inputs.bfloat16(), (GRID, GRID))
    hidden = model(context, given.sources).hidden.flatten(0, 2)[given.word_index]
    expected = cross_entropy(model.readout(hidden).double(), given.targets, reduction="sum")
    found = loss(model, given, context).total
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_likelihood_and_penalty_are_summed_over_captions():
    """Eq. 14 by loops, with gradients that reach attention, next to captions that are padding and
    masked locations.
    """
    model, weight = network("recurrent"), 0.3
    given = collate(range(3), batch(0, 3).inputs.double(), CAPTIONS)
    mask = torch.ones(3, GRID**2, dtype=torch.bool)
    mask[0, 4:] = False
    context = ContextSet(given.inputs, (GRID, GRID), mask)
    found = loss(model, given, context, label_smoothing=0.1, doubly_stochastic=weight)
    plain = loss(model, given, context, label_smoothing=0.1)
    total = torch.zeros(())
    for b, _, words in WORDS:
        features = given.inputs[b : b + 1, : 4 if b == 0 else None]
        alone = ContextSet(features, (1, features.shape[1]))
        alpha = model(alone, torch.tensor([[[BOS, *words]]]), need_weights=True).attention[0, 0]
        total = total + (1 - alpha.sum(dim=0)).square().sum()
    assert set(plain.terms) == {"nll"}
    assert set(found.terms) == {"nll", "doubly_stochastic"}
    assert found.terms["nll"].item() == plain.terms["nll"].item()
    assert found.terms["doubly_stochastic"].item() == pytest.approx(total.item(), rel=1e-12)
    assert not found.terms["doubly_stochastic"].requires_grad
    assert (found.total - plain.total).item() == pytest.approx(weight * total.item(), rel=1e-12)
    key = model.attention.score.weight
    slopes = [torch.autograd.grad(x, key)[0] for x in (found.total - plain.total, weight * total)]
    equal(*slopes)
    assert slopes[0].norm() > 1e-3


NETWORKS = {"recurrent": show_attend_tell, "transformer": transformer}


def network(name):
    return randomised(NETWORKS[name]().double().train(), 0.5, seed=5)


def drawn(logits, height):
    """Where the probabilities of words, the lowest id first, first exceed `height` in sum."""
    weights = [math.exp(x) if i > UNK else 0.0 for i, x in enumerate(logits.tolist())]
    total = 0.0
    for word, weight in enumerate(weights):
        total += weight / sum(weights)
        if total > height:
            return word
    raise AssertionError


@pytest.mark.parametrize("probability", [0.3, 1.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_words_are_replaced_by_those_that_the_model_says(name, probability):
    """A recurrent model after what it has read, a transformer, in one pass, after the caption's own
    words.
    """
    model, found = network(name), batch(0, 5)
    context = ContextSet(found.inputs.double(), (GRID, GRID))
    random = BatchRandom(1, 2, found.index)
    sources, passes = found.sources, []
    uniform = random.uniform(*sources.shape[1:], 2).tolist()
    model.register_forward_hook(lambda *call: passes.append(call))
    mixed = scheduled_inputs(model, context, sources, probability, random)
    assert len(passes) == (name == "transformer")
    replaced = 0
    for b, n in torch.cartesian_prod(*map(torch.arange, sources.shape[:2])).tolist():
        caption = sources[b, n].tolist()
        if caption[0] != BOS:
            continue
        alone = ContextSet(context.vectors[[b]], (GRID, GRID))
        read = [BOS]
        for t in range(1, len(caption)):
            before = read if name == "recurrent" else caption[:t]
            logits = model.readout(model(alone, torch.tensor([[before]])).hidden)[0, 0, -1]
            coin, height = uniform[b][n][t]
            read.append(drawn(logits, height) if coin < probability else caption[t])
        assert mixed[b, n].tolist() == read
        replaced += sum(a != b for a, b in zip(read, caption, strict=True))
    assert replaced > 5
    assert not ((mixed == EOS) & (sources != EOS)).any()
    # and the loss is that of the references after these words
    logits = model.readout(model(context, mixed).hidden.flatten(0, 2)[found.word_index])
    expected = cross_entropy(logits, found.targets, label_smoothing=0.1, reduction="sum")
    objective = CrossEntropy(0.1, scheduled_sampling=probability)
    assert_close(objective(model, context, found, random).total, expected)
    plain = CrossEntropy(0.1)(model, context, found, random).total
    assert objective.eval()(model, context, found, random).total == plain != expected
