"""Cross-entropy against loops and torch's own, Eq. 14 by loops, and scheduled sampling followed step by step."""

import math
from typing import Any

import pytest
import torch
from models.captioners import captioner
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from captioning.backbones.context import ContextSet
from captioning.data.batch import Batch, collate
from captioning.models import Recurrent
from captioning.models.protocol import CaptionOutput
from captioning.tokens import BOS, EOS, UNK
from captioning.training.objectives import BatchRandom, CrossEntropy, Loss
from captioning.training.objectives.cross_entropy import doubly_stochastic, real_positions, scheduled_inputs

from ..world import GRID, batch, show_attend_tell, transformer

V, L, D = 11, 7, 3


class Table(nn.Module):
    """Logits `[B, N, C, V]` known in advance: `hidden` is the place, `readout` looks it up."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, context: ContextSet, tokens: Tensor, need_weights: bool = False) -> CaptionOutput:
        return CaptionOutput(torch.arange(tokens.numel()).reshape(*tokens.shape, 1))

    def readout(self, hidden: Tensor) -> Tensor:
        return self.logits.flatten(0, 2)[hidden.squeeze(-1)]


def captions() -> Batch:
    """Of three images; the second has none."""
    features = torch.randn(3, L, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return collate([0, 1, 2], features, [[[5, 6, 7], [8]], [], [[9, 4]]])


def table(seed: int = 0) -> Table:
    return Table(3 * torch.randn(3, 2, 4, V, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def loss(model: nn.Module, given: Batch, mask: Tensor | None = None, **settings: float) -> Loss:
    context = ContextSet(given.inputs.double(), (1, given.inputs.shape[1]), mask)
    random = BatchRandom(0, 0, given.index)
    return CrossEntropy(**settings)(model, context, given.sources, given.targets, given.word_index, random)


# Likelihood


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_against_loops(smoothing: float) -> None:
    model, given = table(), captions()
    total, nll = 0.0, 0.0
    for b, n, words in ((0, 0, [5, 6, 7, 2]), (0, 1, [8, 2]), (2, 0, [9, 4, 2])):
        for step, word in enumerate(words):
            logits = model.logits[b, n, step].tolist()
            normaliser = math.log(sum(math.exp(x) for x in logits))
            nll += normaliser - logits[word]
            for other in range(V):
                share = smoothing / V + (1 - smoothing) * (other == word)
                total += share * (normaliser - logits[other])
    found = loss(model, given, label_smoothing=smoothing)
    assert found.total.item() == pytest.approx(total, rel=1e-12)
    assert found.terms["nll"].item() == pytest.approx(nll, rel=1e-12)
    assert not found.terms["nll"].requires_grad


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_against_torch_with_gradients(smoothing: float) -> None:
    model, given = table(1), captions()
    loss(model, given, label_smoothing=smoothing).total.backward()
    gradient = model.logits.grad
    model.logits.grad = None
    logits = model.logits.flatten(0, 2)
    targets = given.tokens[..., 1:].flatten()
    # here the padding is left out by torch
    cross_entropy(logits, targets, ignore_index=0, label_smoothing=smoothing, reduction="sum").backward()
    torch.testing.assert_close(gradient, model.logits.grad, rtol=1e-12, atol=1e-14)
    assert not gradient[1].any()  # the image without captions


def test_captions_next_to_a_longer_one_have_the_same_loss() -> None:
    model = transformer().double().eval()
    parts = [loss(model, given).total.item() for given in (batch(0, 1), batch(1, 4))]
    assert loss(model, batch(0, 4)).total.item() == pytest.approx(sum(parts), rel=1e-12)


def test_bfloat16_logits_are_summed_in_float32() -> None:
    model, given = table(), captions()
    model.logits.data = model.logits.data.bfloat16().double()
    exact = loss(model, given).total.item()
    model.bfloat16()
    found = loss(model, given).total
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(exact, rel=1e-6)


# Doubly stochastic attention

B, N, C = 3, 2, 5
LENGTHS = [[5, 2], [0, 0], [3, 0]]
"""Steps of each caption; 0 is a row of padding."""


def maps(seed: int = 0) -> Tensor:
    scores = torch.randn(B, N, C, L, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (2 * scores).softmax(dim=-1)


def real() -> Tensor:
    return torch.arange(C) < torch.tensor(LENGTHS)[..., None]


@pytest.mark.parametrize("absent", [((), (), ()), ((2, 3), (), (0,))])
def test_eq_14_by_loops(absent: tuple[tuple[int, ...], ...]) -> None:
    """Without lambda: the square over all locations that are there, nothing divided by anything."""
    mask = torch.tensor([[i not in row for i in range(L)] for row in absent])
    attention = maps().masked_fill(~mask[:, None, None], 0)
    attention = attention / attention.sum(dim=-1, keepdim=True)
    total = 0.0
    for b, n in ((0, 0), (0, 1), (2, 0)):
        for i in set(range(L)) - set(absent[b]):
            total += (1 - sum(attention[b, n, t, i].item() for t in range(LENGTHS[b][n]))) ** 2
    assert doubly_stochastic(attention, real(), mask).item() == pytest.approx(total, rel=1e-12)
    # without the mask, each of the two captions of the first image and that of the third misses its locations by 1
    missed = 2 * len(absent[0]) + len(absent[2])
    assert doubly_stochastic(attention, real()).item() == pytest.approx(total + missed, rel=1e-12)


def test_scale_by_hand() -> None:
    """L = 4 and two steps. Even maps: 4 (1 - 1/2)^2; one location twice: (1 - 2)^2 + 3; two locations once each: 2."""
    even = torch.full((1, 1, 2, 4), 0.25)
    fixed, moving = (one_hot(torch.tensor([[path]]), 4).float() for path in ([3, 3], [0, 2]))
    steps = torch.ones(1, 1, 2, dtype=torch.bool)
    assert [doubly_stochastic(alpha, steps).item() for alpha in (even, fixed, moving)] == [1, 4, 2]


def test_padding_is_in_no_sum() -> None:
    anything = torch.where(real()[..., None], maps(0), maps(1))
    assert doubly_stochastic(anything, real()).item() == doubly_stochastic(maps(0), real()).item()
    attention = maps().requires_grad_()
    doubly_stochastic(attention, real()).backward()
    expected = torch.zeros_like(attention)
    for b, n in ((0, 0), (0, 1), (2, 0)):
        steps = LENGTHS[b][n]
        expected[b, n, :steps] = -2 * (1 - maps()[b, n, :steps].sum(dim=0))
    torch.testing.assert_close(attention.grad, expected, rtol=1e-12, atol=1e-14)


def test_real_positions_are_those_with_a_target() -> None:
    given = captions()
    found = real_positions(given.word_index, given.sources.shape)
    assert found.sum(dim=-1).tolist() == [[4, 2], [0, 0], [3, 0]]
    assert torch.equal(found, given.tokens[..., 1:] != 0)


def soft() -> Recurrent:
    torch.manual_seed(0)
    settings = {"d_embed": 5, "d_hidden": 2, "score.d_attention": 13, "dropout": 0.0, "attention.temperature": 0.2}
    return captioner("sat_soft", V, D, (1, L), **settings).double()


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_likelihood_and_penalty_are_summed_over_captions(weight: float) -> None:
    """With gradients that reach attention, next to captions that are padding and locations that are masked."""
    model, given = soft(), captions()
    mask = torch.ones(3, L, dtype=torch.bool)
    mask[0, 4:] = False
    found = loss(model, given, mask, label_smoothing=0.1, doubly_stochastic=weight)
    plain = loss(model, given, mask, label_smoothing=0.1)
    penalty = torch.zeros(())
    for b, words in ((0, [5, 6, 7]), (0, [8]), (2, [9, 4])):
        features = given.inputs[b : b + 1, :4] if b == 0 else given.inputs[b : b + 1]
        alone = ContextSet(features, (1, features.shape[1]))
        alpha = model(alone, torch.tensor([[[1, *words]]]), need_weights=True).attention[0, 0]
        penalty = penalty + (1 - alpha.sum(dim=0)).square().sum()
    assert set(plain.terms) == {"nll"}
    assert set(found.terms) == {"nll", "doubly_stochastic"}
    assert found.terms["nll"].item() == plain.terms["nll"].item()
    assert found.terms["doubly_stochastic"].item() == pytest.approx(penalty.item(), rel=1e-12)
    assert not found.terms["doubly_stochastic"].requires_grad
    assert (found.total - plain.total).item() == pytest.approx(weight * penalty.item(), rel=1e-12)
    key = model.attention.score.weight
    slopes = [torch.autograd.grad(x, key)[0] for x in (found.total - plain.total, weight * penalty)]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-12)
    assert slopes[0].norm() > 1e-3


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="doubly_stochastic"):
        loss(table(), captions(), doubly_stochastic=1.0)


# Scheduled sampling

NETWORKS = {"recurrent": show_attend_tell, "transformer": transformer}


def network(name: str) -> Any:
    model = NETWORKS[name]().double().train()
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.5, generator=generator)
    return model


def given() -> tuple[ContextSet, Tensor, BatchRandom]:
    found = batch(0, 5)
    random = BatchRandom(1, 2, found.index)
    return ContextSet(found.inputs.double(), (GRID, GRID)), found.sources, random


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
    model, (context, sources, random) = network(name), given()
    uniform = random.uniform(*sources.shape[1:], 2).tolist()
    found = scheduled_inputs(model, context, sources, probability, random)
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
    model, (context, sources, random) = network(name), given()
    found = batch(0, 5)
    mixed = scheduled_inputs(model, context, sources, 0.5, random)

    def loss(sources: Tensor, **settings: Any) -> Tensor:
        return CrossEntropy(0.1, **settings)(model, context, sources, found.targets, found.word_index, random).total

    assert loss(sources, scheduled_sampling=0.5) == loss(mixed) != loss(sources)
    objective = CrossEntropy(scheduled_sampling=0.5).eval()
    evaluated = objective(model, context, sources, found.targets, found.word_index, random)
    assert evaluated.total == CrossEntropy()(model, context, sources, found.targets, found.word_index, random).total


def test_a_model_that_reads_all_words_at_once_is_asked_once() -> None:
    model, (context, sources, random) = network("transformer"), given()
    calls: list[CaptionOutput] = []
    model.register_forward_hook(lambda *call: calls.append(call[-1]))
    scheduled_inputs(model, context, sources, 0.5, random)
    assert len(calls) == 1
