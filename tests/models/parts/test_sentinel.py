"""Adaptive attention by a loop over its equations, and what follows if the sentinel takes all or
nothing.

D features of a context vector, n of the state, L context vectors.
"""

from typing import Any

import pytest
import torch
from models.captioners import build, inputs, normal
from torch import Tensor

from captioning.models.parts.attention import SoftmaxAttention

MASK = torch.tensor([[k != 3 for k in range(11)], [k in (0, 2, 5) for k in range(11)]])
SIGMOID = torch.sigmoid


def by_hand(model: Any, vectors: Tensor, tokens: Tensor, places: list[int]) -> tuple[Tensor, ...]:
    """Logits `[C, V]`, alpha `[C, L]` and beta `[C]` of one caption of one image."""
    attention, cell, (weight, w) = (
        model.attention,
        model.cell,
        (model.attention.score, model.attention.score.weight),
    )
    v = [(attention.project.weight @ a + attention.project.bias).clamp(min=0) for a in vectors]
    mean = torch.stack([vectors[i] for i in places]).mean(dim=0)
    v_g = (model.inject.project.weight @ mean + model.inject.project.bias).clamp(min=0)
    n = len(cell.hidden.weight[0])
    h = m = torch.zeros(n).double()
    logits, maps, betas = [], [], []
    for token in tokens:
        x = cell.word.weight @ model.embed.weight[token] + cell.word.bias
        i, f, o, g, gate = (x + cell.constant.weight @ v_g + cell.hidden.weight @ h).split(n)
        m = SIGMOID(f) * m + SIGMOID(i) * g.tanh()
        h = SIGMOID(o) * m.tanh()
        s = SIGMOID(gate) * m.tanh()
        asked = weight.query.weight @ h
        z = [
            w @ (weight.context.weight @ v[k] + weight.context.bias + asked).tanh() for k in places
        ]
        z.append(w @ (attention.own.weight @ s + asked).tanh())
        extended = torch.stack(z).exp()
        extended = extended / extended.sum()
        c = extended[-1] * s + sum(e * v[k] for e, k in zip(extended, places, strict=False))
        alpha = torch.zeros(len(vectors)).double()
        alpha[places] = extended[:-1] / extended[:-1].sum()
        logits.append(model.head.output.weight @ (c + h) + model.head.output.bias)
        maps.append(alpha)
        betas.append(extended[-1])
    return torch.stack(logits), torch.stack(maps), torch.stack(betas)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@torch.no_grad()
def test_the_equations(mask: Tensor | None) -> None:
    model: Any = build("adaptive")
    context, tokens = inputs(mask)
    output = model(context, tokens, need_weights=True)
    logits, looked = model.readout(output.hidden), model.attention_shares(context, tokens)["image"]
    for b, captions in enumerate(tokens):
        places = list(range(11)) if mask is None else mask[b].nonzero().flatten().tolist()
        for n, caption in enumerate(captions):
            wanted = by_hand(model, context.vectors[b], caption, places)
            found = logits[b, n], output.attention[b, n], 1 - looked[b, n]
            torch.testing.assert_close(found, wanted)


def forced(beta: float) -> Any:
    model: Any = build("adaptive")
    model.attention.share = lambda own, scores: torch.full_like(own, beta)
    return model


@torch.no_grad()
def test_without_the_sentinel_it_is_soft_attention() -> None:
    model = forced(0.0)
    context, _ = inputs(MASK)
    plain = SoftmaxAttention(19, 19, context.grid, lambda **_: model.attention.score)
    query = normal(2, 3, 38)
    regions = model.attention.read(context)
    projected = type(context)(regions.values, context.grid, context.mask)
    found, wanted = model.attention(regions, query), plain(plain.read(projected), query[..., :19])
    torch.testing.assert_close(found[:2], wanted[:2])


@torch.no_grad()
def test_with_the_sentinel_alone_a_word_does_not_depend_on_the_regions() -> None:
    """Given the state and the sentinel; with a part of the regions it does."""
    query = normal(2, 3, 38)
    for beta, equal in ((1.0, True), (0.9, False)):
        attention = forced(beta).attention
        images = (attention.read(inputs(mask)[0]) for mask in (None, MASK))
        one, other = (attention(image, query).context for image in images)
        assert torch.equal(one, other) == equal
