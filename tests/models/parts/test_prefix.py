"""The prefix decoder by loops over its equations, and its masks.

B images, N captions per image, T words, P places, H heads of A features.
"""

import math

import pytest
import torch
from models.captioners import B, C, L, N, agree, build, inputs
from models.tensors import normal, randomised

from captioning.backbones.context import ContextSet
from captioning.models.parts.prefix import PrefixLayer
from experiments.pointing import layer_weights

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.mark.parametrize("biases", [False, True])
def test_words_and_places_share_a_softmax(biases):
    """Of one head and two layers; the second reads what the first makes of the places."""
    width, tau = 6, 1.7
    layers = [
        randomised(PrefixLayer(width, 1, 5, 0.0, "post", biases=biases), seed=k) for k in range(2)
    ]
    image, words = normal(1, 3, width), normal(1, 1, 2, width, seed=2)
    causal = torch.ones(2, 2, dtype=torch.bool).tril()
    x, vectors = words, [image]
    for layer in layers:
        keys, vectors = layer.image(vectors, tau, None)
        out = layer(
            x,
            past=None,
            text_scale=0.0,
            text_mask=causal,
            image=keys,
            image_scale=tau,
            image_mask=None,
            need_inter=True,
        )
        x, total = out.hidden, out.text.sum(-1) + out.inter.sum(-1)
        agree(total, torch.ones(1, 1, 2).double())
    sequence = torch.cat((image[0], words[0, 0]))
    for layer in layers:
        output, project = layer.attention.output, layer.attention.project.linear
        shift, start = (output.bias, project.bias) if biases else (0, torch.zeros(3 * width))
        query, key, value = (
            sequence @ w.T + b for w, b in zip(project.weight.chunk(3), start.chunk(3), strict=True)
        )
        rows = []
        for i in range(5):
            seen = (
                range(3) if i < 3 else range(i + 1)
            )  # places see places, words also the words before
            weights = torch.stack([(query[i] @ key[j] / tau).exp() for j in seen])
            mixed = (weights / weights.sum()) @ value[list(seen)]
            mixed = mixed @ output.weight.T + shift
            rows.append(layer.attention.norm(mixed + sequence[i]))
        sequence = layer.feed_forward(torch.stack(rows))
    agree(x[0, 0], sequence[3:])
    agree(vectors[0][0], sequence[:3])


def test_the_temperature_counts_places_and_words():
    model, (context, _) = build("prefix"), inputs()
    assert model.start(context, N).image.scale == pytest.approx(
        math.sqrt(L + model.max_tokens + model.d_attn)
    )


@pytest.mark.parametrize("conditioning", ["prefix", "causal_prefix"])
def test_the_order_of_places_counts_only_where_they_see_those_before(conditioning):
    model, (context, tokens) = (
        build("prefix", conditioning=conditioning, **{"encoder.positions": "none"}),
        inputs(),
    )
    other = ContextSet(context.vectors[:, torch.randperm(L)], context.grid)
    one, two = (model.readout(model(each, tokens).hidden) for each in (context, other))
    assert torch.allclose(one, two, rtol=0, atol=1e-10) == (conditioning == "prefix")


def test_the_share_of_attention_on_the_image():
    model, (context, tokens) = build("prefix"), inputs()
    weights = layer_weights(model, context, tokens[:, 0])
    share = torch.stack([each.sum(dim=-1).mean(dim=1) for each in weights.inter]).mean(dim=0)
    found = model.attention_shares(context, tokens)
    assert found["image"].shape == (B, N, C)
    agree(found["image"][:, 0], share)
    assert (share[:, 0] > share[:, -1]).all()  # the first word has no words before
    assert model.shares_attention
    plain = build("spatial_transformer")
    assert not plain.shares_attention
    assert not plain.attention_shares(context, tokens)
