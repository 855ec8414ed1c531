import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from captioning.backbones.context import ContextSet
from captioning.data.batch import Batch, collate
from captioning.models.protocol import CaptionOutput
from captioning.training.objectives import BatchRandom, CrossEntropy, Loss

from ..world import batch, transformer

V = 11


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
    return collate([0, 1, 2], torch.zeros(3, 1, 1), [[[5, 6, 7], [8]], [], [[9, 4]]])


def table(seed: int = 0) -> Table:
    return Table(3 * torch.randn(3, 2, 4, V, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def loss(model: nn.Module, given: Batch, smoothing: float = 0.0) -> Loss:
    context = ContextSet(given.inputs.double(), (1, 1))
    return CrossEntropy(smoothing)(
        model, context, given.sources, given.targets, given.word_index, BatchRandom(0, 0, given.index)
    )


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
    found = loss(model, given, smoothing)
    assert found.total.item() == pytest.approx(total, rel=1e-12)
    assert found.terms["nll"].item() == pytest.approx(nll, rel=1e-12)
    assert not found.terms["nll"].requires_grad


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_against_torch_with_gradients(smoothing: float) -> None:
    model, given = table(1), captions()
    loss(model, given, smoothing).total.backward()
    gradient = model.logits.grad
    model.logits.grad = None
    logits = model.logits.flatten(0, 2)
    targets = given.tokens[..., 1:].flatten()
    # here the padding is left out by torch
    cross_entropy(logits, targets, ignore_index=0, label_smoothing=smoothing, reduction="sum").backward()
    torch.testing.assert_close(gradient, model.logits.grad, rtol=1e-12, atol=1e-14)
    assert not gradient[1].any()  # the image without captions


def test_padding_never_counts() -> None:
    """The same captions beside a longer one: the sum is the sum of both."""
    model = transformer().double().eval()
    short, long = batch(0, 1), batch(1, 4)
    both = batch(0, 4)
    parts = [loss_of(model, given).total.item() for given in (short, long)]
    assert loss_of(model, both).total.item() == pytest.approx(sum(parts), rel=1e-12)


def loss_of(model: nn.Module, given: Batch) -> Loss:
    context = ContextSet(given.inputs.double(), (3, 3))
    return CrossEntropy()(
        model, context, given.sources, given.targets, given.word_index, BatchRandom(0, 0, given.index)
    )


def test_bfloat16_logits_are_summed_in_float32() -> None:
    model, given = table(), captions()
    model.logits.data = model.logits.data.bfloat16().double()
    exact = loss(model, given).total.item()
    model.bfloat16()
    found = loss(model, given).total
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(exact, rel=1e-6)
