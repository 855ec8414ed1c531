"""Scores against their equations, number by number, and what each of them cannot do.

B images, N captions per image, L context vectors of D features on a grid, queries of n features, A attention features.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models.captioners import normal, randomised
from torch import Tensor

from captioning.backbones.context import ContextSet
from captioning.models.parts.additive import Keys, additive_scores
from captioning.models.parts.attention import SoftmaxAttention
from captioning.models.parts.scores import MLP, Dot, Linear, Location, ProjectedDot, Score, SingleLayer

B, N, D, QUERY, A, GRID = 2, 3, 5, 7, 11, (3, 5)
L = GRID[0] * GRID[1]
MASK = torch.ones(B, L, dtype=torch.bool)
MASK[0, [0, 7, 14]] = False
MASK[1, 4:] = False
SCORES: dict[str, Callable[[], Score]] = {
    "mlp": lambda: MLP(D, QUERY, GRID, A),
    "single_layer": lambda: SingleLayer(D, QUERY, GRID),
    "single_layer, scaled": lambda: SingleLayer(D, QUERY, GRID, learned_scale=True),
    "linear": lambda: Linear(D, QUERY, GRID),
    "dot": lambda: Dot(D, D, GRID),
    "dot, projected query": lambda: Dot(D, QUERY, GRID),
    "scaled_dot": lambda: Dot(D, QUERY, GRID, scaled=True),
    "projected_dot": lambda: ProjectedDot(D, QUERY, GRID, A),
    "location": lambda: Location(D, QUERY, GRID, A, filters=2, reach=2),
}


def by_hand(name: str, p: dict[str, Tensor], c: Tensor, h: Tensor, past: Tensor) -> Tensor:
    """e_i of one location `[D]`, query `[n]`, and what location-aware scores see, `[d]`."""
    if name == "mlp":
        return p["weight"] @ (p["context.weight"] @ c + p["query.weight"] @ h + p["context.bias"]).tanh()
    if name == "location":
        inner = p["context.weight"] @ c + p["query.weight"] @ h + p["location.weight"] @ past + p["context.bias"]
        return p["weight"] @ inner.tanh()
    if name.startswith("single_layer"):
        e = (p["context.weight"][0] @ c + p["query.weight"][0] @ h).tanh()
        return e * p["log_scale"].exp() if "log_scale" in p else e
    if name == "linear":
        return p["context.weight"][0] @ c + p["query.weight"][0] @ h + p["context.bias"][0]
    if name == "projected_dot":
        return (p["query.weight"] @ h) @ (p["key.weight"] @ c) / math.sqrt(A)
    return (p["query.weight"] @ h if "query.weight" in p else h) @ c / (math.sqrt(D) if name == "scaled_dot" else 1)


def what_it_sees(filters: Tensor, alpha: Tensor) -> Tensor:
    """f_j = sum_k v_{k-j} alpha_k over the grid, `[L, d]`, offsets up to 1 in both directions."""
    w = GRID[1]
    seen = torch.zeros(L, len(filters), dtype=torch.float64)
    for j in range(L):
        for k in range(L):
            row, column = k // w - j // w + 1, k % w - j % w + 1
            if 0 <= row < 3 and 0 <= column < 3:
                seen[j] += filters[:, 0, row, column] * alpha[k]
    return seen


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("first", [True, False])
def test_scores_are_those_of_the_equation(name: str, first: bool) -> None:
    score = randomised(SCORES[name]())
    context = ContextSet(normal(B, L, D), GRID, MASK)
    queries = normal(B, N, D if name == "dot" else QUERY, seed=3)
    alpha = normal(B, N, L, seed=4).softmax(-1)
    found = score(score.keys(context), queries, None if first else alpha)
    assert found.shape == (B, N, L)
    p = dict(score.named_parameters())
    for b in range(B):
        for n in range(N):
            before = MASK[b].double() / MASK[b].sum() if first else alpha[b, n]
            seen = what_it_sees(p["filters"], before) if name == "location" else torch.zeros(L, 1)
            for i in range(L):
                expected = by_hand(name, p, context.vectors[b, i], queries[b, n], seen[i])
                torch.testing.assert_close(found[b, n, i], expected, rtol=0, atol=1e-12)
    values = score.values(context.vectors)
    expected = context.vectors @ p["value.weight"].T if name == "projected_dot" else context.vectors
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-12)
    assert values.shape[-1] == score.d_value


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("size", [1e-30, 1e4])
def test_extreme_values_make_weights(name: str, size: float) -> None:
    score = randomised(SCORES[name]()).float()
    width = D if name == "dot" else QUERY
    attention = SoftmaxAttention(D, width, GRID, lambda **_: score)
    vectors = (size * normal(B, L, D)).float().requires_grad_()
    image = attention.read(ContextSet(vectors, GRID, MASK))
    look = attention(image, (size * normal(B, N, width)).float())
    torch.testing.assert_close(look.alpha.sum(-1), torch.ones(B, N))
    assert not look.alpha.transpose(1, 2)[~MASK].any()
    look.context.sum().backward()
    assert vectors.grad.isfinite().all()


@pytest.mark.parametrize("length", [49, 196])
def test_a_single_layer_cannot_focus(length: int) -> None:
    """However its weights are, no location gets more than e^2 / (e^2 + L - 1); the bound is reached in the limit."""
    attention = SoftmaxAttention(1, 1, (1, length), SingleLayer).double()
    attention.score.context.weight.data.fill_(1)
    attention.score.query.weight.data.zero_()
    vectors = torch.full((1, length, 1), -1e3, dtype=torch.float64)
    vectors[0, 3] = 1e3
    alpha = attention(attention.read(ContextSet(vectors, (1, length))), torch.zeros(1, 1, 1).double()).alpha
    bound = math.e**2 / (math.e**2 + length - 1)
    assert alpha.max().item() == pytest.approx(bound, rel=1e-12)
    assert bound == pytest.approx({49: 0.133, 196: 0.0365}[length], abs=5e-4)
    vectors = 100 * normal(1, length, 1)
    assert attention(attention.read(ContextSet(vectors, (1, length))), vectors[:, :1]).alpha.max() <= bound


def test_a_linear_score_has_one_map_whatever_the_state() -> None:
    attention = randomised(SoftmaxAttention(D, QUERY, GRID, Linear))
    image = attention.read(ContextSet(normal(B, L, D), GRID, MASK))
    one, other = (attention(image, 30 * normal(B, N, QUERY, seed=seed)).alpha for seed in (1, 2))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert one.std(dim=-1).amin() > 1e-3


def test_location_is_the_same_everywhere_inside_the_grid() -> None:
    """With equal vectors, weights that move by a place make scores that move by a place, away from the border."""
    grid = (7, 9)
    score = randomised(Location(D, QUERY, grid, A, filters=2, reach=2))
    keys = score.keys(ContextSet(normal(1, 1, D).expand(1, 63, D), grid))
    query = normal(1, 1, QUERY)
    alpha = torch.zeros(1, 1, *grid, dtype=torch.float64)
    alpha[..., 3, 3], alpha[..., 3, 4], alpha[..., 2, 4] = 0.5, 0.3, 0.2
    one, moved = (
        score(keys, query, x.flatten(-2)).view(grid) for x in (alpha, alpha.roll(shifts=(1, 2), dims=(-2, -1)))
    )
    torch.testing.assert_close(moved[1:, 2:], one[:-1, :-2], rtol=0, atol=1e-12)
    assert one.std() > 1e-3


@pytest.mark.parametrize("grid", [(1, 7), (7, 1)])
def test_location_has_filters_along_the_axes_that_the_grid_has(grid: tuple[int, int]) -> None:
    """A sequence: f_j = sum_k v_{k-j} alpha_k, of K + 1 taps."""
    score = randomised(Location(D, QUERY, grid, A, filters=2, reach=4))
    assert score.filters.numel() == 2 * 5
    alpha, seen = normal(1, 1, 7).softmax(-1), torch.zeros(7, 2, dtype=torch.float64)
    for j in range(7):
        for k in range(max(0, j - 2), min(7, j + 3)):
            seen[j] += score.filters.flatten(1)[:, k - j + 2] * alpha[0, 0, k]
    vectors, query = normal(1, 7, D), normal(1, 1, QUERY)
    found = score(score.keys(ContextSet(vectors, grid)), query, alpha)
    p = dict(score.named_parameters())
    expected = torch.stack([by_hand("location", p, vectors[0, i], query[0, 0], seen[i]) for i in range(7)])
    torch.testing.assert_close(found[0, 0], expected, rtol=0, atol=1e-12)


def test_additive_scores_with_features_of_pairs_are_the_plain_formula() -> None:
    """In values and in all gradients, one image at a time; in half precision as exact as their size asks."""
    sizes: list[Any] = [(B, L, A), (B, N, A), (A,), (B, N, L, 3), (A, 3)]
    leaves = [normal(*size, seed=i).requires_grad_() for i, size in enumerate(sizes)]
    keys, query, weight, pairs, matrix = leaves
    found = additive_scores(Keys.of(keys), query, weight, pairs, matrix)
    expected = (keys[:, None] + query[:, :, None] + pairs @ matrix.T).tanh() @ weight
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream = normal(B, N, L, seed=9)
    gradients = (torch.autograd.grad(x, leaves, upstream) for x in (found, expected))
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
    half = [x.detach().bfloat16() for x in leaves]
    found = additive_scores(Keys.of(half[0]), *half[1:])
    torch.testing.assert_close(found.double(), expected.detach(), rtol=0, atol=0.1)
