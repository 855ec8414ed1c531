"""Scores against their equations, number by number, and what each of them cannot do.

B images, N captions per image, L context vectors of D features on a grid, queries of n features, A
attention features.
"""

import math
from functools import partial

import pytest
import torch
from models.captioners import all_or
from models.tensors import close, normal, randomised
from torch.nn import functional as F

from captioning.backbones.context import ContextSet
from captioning.models.parts.attention import SoftmaxAttention
from captioning.models.parts.scores import (
    AdditiveScore,
    Dot,
    LinearScore,
    Location,
    ProjectedDot,
    SingleLayer,
    Uniform,
)

B, N, D, QUERY, A, GRID = 2, 3, 5, 7, 11, (3, 5)
L = GRID[0] * GRID[1]
MASK = torch.ones(B, L, dtype=torch.bool)
MASK[0, [0, 7, 14]] = False
MASK[1, 4:] = False

LOCATION = {"d_attention": A, "filters": 2, "kernel_size": 3}
scores = pytest.mark.parametrize(
    "kind, width, settings",
    [
        (AdditiveScore, QUERY, {"d_attention": A}),
        (AdditiveScore, QUERY, {"d_attention": A, "activation": "relu"}),
        (SingleLayer, QUERY, {}),
        (SingleLayer, QUERY, {"learned_scale": True}),
        (LinearScore, QUERY, {}),
        (Dot, D, {}),
        (Dot, QUERY, {}),
        (Dot, QUERY, {"scaled": True}),
        (ProjectedDot, QUERY, {"d_attention": A}),
        (ProjectedDot, QUERY, {"d_attention": A, "biases": True, "norm": "deviation"}),
        (Location, QUERY, LOCATION),
        (Location, QUERY, LOCATION | {"first": "start"}),
    ],
)


def equation(kind, p, settings, c, h, f):
    """e_i of a location `[D]`, a query `[n]` and what location-aware scores see, `[d]`."""
    if kind is Dot:
        product = (p["query.weight"] @ h if "query.weight" in p else h) @ c
        return product / math.sqrt(D) if "scaled" in settings else product
    if "norm" in settings:
        centred = h - h.mean()
        h = p["norm.weight"] * centred / (h.std() + 1e-6) + p["norm.bias"]
    query = p["query.weight"] @ h + p.get("query.bias", 0)
    if kind is ProjectedDot:
        return query @ (p["key.weight"] @ c + p.get("key.bias", 0)) / math.sqrt(A)
    total = p["context.weight"] @ c + query
    if kind is SingleLayer:
        return total[0].tanh() * p.get("log_scale", torch.zeros(())).exp()
    total = total + p["context.bias"]
    if kind is LinearScore:
        return total[0]
    if kind is Location:
        total = total + p["location.weight"] @ f
    return p["weight"] @ (total.relu() if "activation" in settings else total.tanh())


def what_it_sees(filters, alpha, grid):
    """f_j = sum_k v_{k-j} alpha_k over the grid, `[L, d]`."""
    (h, w), (rows, columns) = grid, filters.shape[2:]
    seen = torch.zeros(h * w, len(filters), dtype=torch.float64)
    for j in range(h * w):
        for k in range(h * w):
            row, column = k // w - j // w + rows // 2, k % w - j % w + columns // 2
            if 0 <= row < rows and 0 <= column < columns:
                seen[j] += filters[:, 0, row, column] * alpha[k]
    return seen


@scores
@pytest.mark.parametrize("first", [True, False])
def test_scores_are_those_of_the_equation(kind, width, settings, first):
    vectors, queries = normal(B, L, D), normal(B, N, width, seed=3)
    alpha = normal(B, N, L, seed=4).softmax(-1)
    for grid in [GRID, (1, L), (L, 1)] if kind is Location else [GRID]:
        score = randomised(kind(D, width, grid, **settings))
        keys = score.keys(ContextSet(vectors, grid, MASK))
        found = score(keys, queries, None if first else alpha)
        p = dict(score.named_parameters())
        if kind is Location:  # filters have the axes that the grid has
            assert p["filters"].shape[2:] == tuple(min(3, side) for side in grid)
        for b in range(B):
            even = MASK[b].double() / MASK[b].sum()
            start = F.one_hot(MASK[b].nonzero()[0, 0], L).double()
            for n in range(N):
                before = alpha[b, n] if not first else start if "first" in settings else even
                seen = torch.zeros(L, 1)
                if kind is Location:
                    seen = what_it_sees(p["filters"], before, grid)
                expected = [
                    equation(kind, p, settings, vectors[b, i], queries[b, n], seen[i])
                    for i in range(L)
                ]
                close(found[b, n], torch.stack(expected))
        values = score.values(vectors)
        projected = vectors @ p.get("value.weight", torch.eye(D).double()).T
        close(values, projected + p.get("value.bias", 0))
        assert values.shape[-1] == score.d_value


HEADED = [
    (AdditiveScore, {"d_attention": 6}),
    (Location, {"d_attention": 6, "filters": 2, "kernel_size": 3}),
    (LinearScore, {}),
    (SingleLayer, {"learned_scale": True}),
    (Dot, {"scaled": True}),
    (ProjectedDot, {"d_attention": 6}),
]


@pytest.mark.parametrize("kind, settings", HEADED)
@torch.no_grad()
def test_heads_are_as_many_scores_of_parts_of_the_features(kind, settings):
    """Each with its part of the matrices and values; z is what they find side by side, alpha the
    mean of theirs.
    """
    width, heads = 4, 2
    attention = randomised(
        SoftmaxAttention(width, QUERY, GRID, partial(kind, heads=heads, **settings))
    )
    whole, image = attention.score, ContextSet(normal(B, L, width), GRID, MASK)
    queries, past = normal(B, N, QUERY, seed=3), normal(B, N, L, seed=4).softmax(-1)
    found = attention(attention.read(image), queries, past)
    contexts, alphas = [], []
    for head in range(heads):
        smaller = settings | ({"d_attention": 3} if "d_attention" in settings else {})
        part = 2 * head, 2 * head + 2
        if kind is Dot:  # whose queries are projected to the features themselves
            image_part, one = (
                ContextSet(image.vectors[..., slice(*part)], GRID, MASK),
                Dot(2, QUERY, GRID, **smaller),
            )
        else:
            image_part, one = image, kind(width, QUERY, GRID, **smaller)
        one = one.double()
        for name, parameter in one.named_parameters():
            own = whole.get_parameter(name)
            rows = own.chunk(heads)[head] if own.shape != parameter.shape else own
            parameter.copy_(rows)
        alone = SoftmaxAttention(width, QUERY, GRID, lambda score=one, **_: score)
        look = alone(alone.read(image_part), queries, past)
        alphas.append(look.alpha)
        values = whole.values(image.vectors)
        contexts.append(
            look.alpha @ values[..., head * values.shape[-1] // 2 :][..., : values.shape[-1] // 2]
        )
    close(found.context, torch.cat(contexts, dim=-1))
    close(found.alpha, torch.stack(alphas).mean(dim=0))


def test_heads_have_no_common_location():
    several = partial(ProjectedDot, d_attention=6, heads=2)
    assert not SoftmaxAttention(D, QUERY, GRID, several).stochastic
    for choice in ("sample", "argmax"):
        with pytest.raises(ValueError, match="heads is 2"):
            SoftmaxAttention(D, QUERY, GRID, several, mode=choice)
    with pytest.raises(ValueError, match="heads is 2"):
        AdditiveScore(D, QUERY, GRID, heads=2)  # of five features


@scores
@pytest.mark.parametrize("size", [1e-30, 1e4])
def test_extreme_values_make_weights(kind, width, settings, size):
    score = randomised(kind(D, width, GRID, **settings)).float()
    attention = SoftmaxAttention(D, width, GRID, lambda **_: score)
    vectors = (size * normal(B, L, D)).float().requires_grad_()
    look = attention(
        attention.read(ContextSet(vectors, GRID, MASK)), (size * normal(B, N, width)).float()
    )
    torch.testing.assert_close(look.alpha.sum(-1), torch.ones(B, N))
    assert not look.alpha.transpose(1, 2)[~MASK].any()
    look.context.sum().backward()
    assert vectors.grad.isfinite().all()


@all_or(MASK)
@torch.no_grad()
def test_uniform_attention_equals_soft_attention_with_equal_scores(mask):
    vectors, queries = normal(B, L, D), normal(B, N, QUERY, seed=3)
    context = ContextSet(vectors, GRID, mask)
    uniform = randomised(SoftmaxAttention(D, QUERY, GRID, Uniform, gate=True))
    soft = randomised(SoftmaxAttention(D, QUERY, GRID, AdditiveScore, gate=True))
    soft.gate.load_state_dict(uniform.gate.state_dict())
    soft.score.weight.zero_()
    found = uniform(uniform.read(context), queries)
    expected = soft(soft.read(context), queries)
    close(found.context, expected.context)
    close(found.alpha, expected.alpha)
