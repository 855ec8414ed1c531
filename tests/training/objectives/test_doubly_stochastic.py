import pytest
import torch
from models.captioners import captioner
from torch import Tensor, nn
from torch.nn.functional import one_hot

from captioning.backbones.context import ContextSet
from captioning.data.batch import Batch, collate
from captioning.models import Recurrent
from captioning.models.protocol import CaptionOutput
from captioning.training.objectives import BatchRandom, CrossEntropy
from captioning.training.objectives.cross_entropy import doubly_stochastic, real_positions

B, N, C, L = 3, 2, 5, 7
LENGTHS = [[5, 2], [0, 0], [3, 0]]
"""Steps of each caption; 0 is a row of padding."""


def maps(seed: int = 0) -> Tensor:
    scores = torch.randn(B, N, C, L, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (2 * scores).softmax(dim=-1)


def real() -> Tensor:
    return torch.arange(C) < torch.tensor(LENGTHS)[..., None]


def by_loops(attention: Tensor, locations: list[list[int]]) -> float:
    """Eq. 14 without lambda: the square over all locations, nothing divided by anything."""
    total = 0.0
    for b in range(B):
        for n in range(N):
            if LENGTHS[b][n] == 0:
                continue
            for i in locations[b]:
                seen = sum(attention[b, n, t, i].item() for t in range(LENGTHS[b][n]))
                total += (1 - seen) ** 2
    return total


def test_against_loops() -> None:
    expected = by_loops(maps(), [list(range(L))] * B)
    assert doubly_stochastic(maps(), real()).item() == pytest.approx(expected, rel=1e-12)


def test_scale_by_hand() -> None:
    """L = 4 and two steps. Even maps: 4 (1 - 1/2)^2; one location twice: (1 - 2)^2 + 3; two locations once each: 2."""
    even = torch.full((1, 1, 2, 4), 0.25)
    fixed, moving = (one_hot(torch.tensor([[path]]), 4).float() for path in ([3, 3], [0, 2]))
    steps = torch.ones(1, 1, 2, dtype=torch.bool)
    assert [doubly_stochastic(alpha, steps).item() for alpha in (even, fixed, moving)] == [1, 4, 2]


def test_masked_locations_are_in_no_sum() -> None:
    mask = torch.ones(B, L, dtype=torch.bool)
    mask[0, 2:4], mask[2, 0] = False, False
    attention = maps().masked_fill(~mask[:, None, None], 0)
    attention = attention / attention.sum(dim=-1, keepdim=True)
    expected = by_loops(attention, [[0, 1, 4, 5, 6], [], [1, 2, 3, 4, 5, 6]])
    assert doubly_stochastic(attention, real(), mask).item() == pytest.approx(expected, rel=1e-12)
    # each of the two captions of the first image and the one of the third would miss its locations by 1
    assert doubly_stochastic(attention, real()).item() == pytest.approx(expected + 2 * 2 + 1, rel=1e-12)


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


# In the objective

D, V = 3, 11


def captions() -> Batch:
    features = torch.randn(3, L, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return collate([0, 1, 2], features, [[[5, 6, 7], [8]], [], [[9, 4]]])


def network() -> Recurrent:
    torch.manual_seed(0)
    settings = {"d_embed": 5, "d_hidden": 2, "score.d_attention": 13, "dropout": 0.0, "temperature": 0.2}
    return captioner("sat_soft", V, D, (1, L), **settings).double()


NONE = BatchRandom(0, 0, torch.arange(3))
"""Random numbers, of which none is used."""


class Blind(nn.Module):
    """Never looks at the image."""

    def __init__(self) -> None:
        super().__init__()
        self.readout = nn.Linear(1, V)

    def forward(self, context: ContextSet, tokens: Tensor, need_weights: bool = False) -> CaptionOutput:
        return CaptionOutput(tokens[..., None].float())


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_likelihood_and_penalty_are_summed_over_captions(weight: float) -> None:
    model, given = network(), captions()
    mask = torch.ones(3, L, dtype=torch.bool)
    mask[0, 4:] = False
    context = ContextSet(given.inputs, (1, L), mask)
    found = CrossEntropy(0.1, weight)(model, context, given.sources, given.targets, given.word_index, NONE)
    plain = CrossEntropy(0.1)(model, context, given.sources, given.targets, given.word_index, NONE)
    penalty = 0.0
    for b, words in ((0, [5, 6, 7]), (0, [8]), (2, [9, 4])):
        features = given.inputs[b : b + 1, :4] if b == 0 else given.inputs[b : b + 1]
        alone = ContextSet(features, (1, features.shape[1]))
        alpha = model(alone, torch.tensor([[[1, *words]]]), need_weights=True).attention[0, 0]
        penalty += sum((1 - sum(column)) ** 2 for column in alpha.T.tolist())
    assert set(plain.terms) == {"nll"}
    assert set(found.terms) == {"nll", "doubly_stochastic"}
    assert found.terms["nll"].item() == plain.terms["nll"].item()
    assert found.terms["doubly_stochastic"].item() == pytest.approx(penalty, rel=1e-12)
    assert not found.terms["doubly_stochastic"].requires_grad
    assert (found.total - plain.total).item() == pytest.approx(weight * penalty, rel=1e-12)


def test_gradient_is_finite_and_reaches_attention() -> None:
    """Also beside captions that are padding and locations that are masked."""
    model, given = network(), captions()
    mask = torch.ones(3, L, dtype=torch.bool)
    mask[1:, :3] = False
    context = ContextSet(given.inputs, (1, L), mask)
    gradients = []
    for weight in (0.0, 1.0):
        model.zero_grad()
        CrossEntropy(0.0, weight)(model, context, given.sources, given.targets, given.word_index, NONE).total.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        gradients.append(model.attention.score.weight.grad.clone())
    assert (gradients[1] - gradients[0]).norm() > 1e-3


def test_models_without_attention_are_refused() -> None:
    given = captions()
    context = ContextSet(given.inputs, (1, L))
    arguments = (Blind(), context, given.sources, given.targets, given.word_index, NONE)
    with pytest.raises(
        ValueError, match=r"^objective.doubly_stochastic needs attention, and the model has none: set it"
    ):
        CrossEntropy(doubly_stochastic=1.0)(*arguments)
    assert set(CrossEntropy()(*arguments).terms) == {"nll"}
