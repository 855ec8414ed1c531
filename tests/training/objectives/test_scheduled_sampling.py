"""What a model reads under scheduled sampling, followed by loops over its own steps."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.protocol import CaptionOutput
from captioning.tokens import BOS, EOS, UNK
from captioning.training.objectives import BatchRandom, CrossEntropy
from captioning.training.objectives.cross_entropy import scheduled_inputs

from ..world import GRID, batch, show_attend_tell, transformer

NETWORKS = {"recurrent": show_attend_tell, "transformer": transformer}


def network(name: str) -> Any:
    model = NETWORKS[name]().double().train()
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.5, generator=generator)
    return model


def given() -> tuple[ContextSet, Tensor, BatchRandom]:
    found = batch(0, 5)
    draws = BatchRandom(1, 2, found.index)
    return ContextSet(found.inputs.double(), (GRID, GRID)), found.sources, draws


def drawn(logits: Tensor, height: float) -> int:
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
def test_words_are_replaced_by_those_that_the_model_says(name: str, probability: float) -> None:
    """A recurrent model after what it has read, a transformer after the caption's own words."""
    model, (context, sources, draws) = network(name), given()
    uniform = draws.uniform(*sources.shape[1:], 2).tolist()
    found = scheduled_inputs(model, context, sources, probability, draws)
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
        assert found[b, n].tolist() == read
        replaced += sum(a != b for a, b in zip(read, caption, strict=True))
    assert replaced > 5
    assert not ((found == EOS) & (sources != EOS)).any()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_loss_is_that_of_the_references_after_other_words(name: str) -> None:
    model, (context, sources, draws) = network(name), given()
    found = batch(0, 5)
    mixed = scheduled_inputs(model, context, sources, 0.5, draws)

    def loss(sources: Tensor, **settings: Any) -> Tensor:
        return CrossEntropy(0.1, **settings)(model, context, sources, found.targets, found.word_index, draws).total

    assert loss(sources, scheduled_sampling=0.5) == loss(mixed) != loss(sources)
    objective = CrossEntropy(scheduled_sampling=0.5).eval()
    evaluated = objective(model, context, sources, found.targets, found.word_index, draws)
    assert evaluated.total == CrossEntropy()(model, context, sources, found.targets, found.word_index, draws).total


def test_a_model_that_reads_all_words_at_once_is_asked_once() -> None:
    model, (context, sources, draws) = network("transformer"), given()
    calls: list[CaptionOutput] = []
    model.register_forward_hook(lambda *call: calls.append(call[-1]))
    scheduled_inputs(model, context, sources, 0.5, draws)
    assert len(calls) == 1
