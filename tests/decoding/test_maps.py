"""Maps of decoded captions are those of the steps; rollout by hand, gradients as differences of the
output.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from models.captioners import CAPTIONERS, MASK, B, C, L, agree, build, captioner, inputs
from models.tensors import normal
from numpy.testing import assert_allclose

from captioning.backbones.context import ContextSet
from captioning.decoding import beam_search, greedy
from captioning.decoding.caption import FORBIDDEN
from captioning.decoding.maps import all_maps, caption_maps
from captioning.decoding.steps import log_probs
from captioning.models.parts import layers
from captioning.tokens import BOS, EOS
from experiments import pointing
from experiments.pointing import LayerWeights, gradient, layer_weights, rollout

LAYERED = [
    name
    for name in CAPTIONERS
    if name.split()[0].endswith("transformer")
    or name.split()[0] in ("geometry", "meshed_memory", "prefix")
    if "pooled" not in name and "queries" not in name
]
"""Transformers whose image has places."""
GRID, DIM, VOCABULARY, LAYERS, HEADS = (2, 3), 5, 11, 3, 2


@pytest.fixture
def context():
    torch.manual_seed(7)
    return ContextSet(torch.randn(1, 6, DIM).double(), GRID)


def test_every_layer_and_head(context):
    sizes = {"max_tokens": 7, "d_model": 14, "heads": HEADS, "d_ff": 13, "decoder_layers": LAYERS}
    model = captioner("spatial_transformer", VOCABULARY, DIM, GRID, **sizes).double().eval()
    (caption,) = greedy(model, context, max_length=7)
    words = caption.tokens[:5]
    caption.tokens[5:] = [EOS]
    kept = all_maps(model, context, caption)
    maps = caption_maps(model, context, words)
    assert list(kept) == ["mean", *maps]
    assert list(maps) == [
        f"inter {layer + 1} {head + 1}" for layer in range(LAYERS) for head in range(HEADS)
    ]
    assert {each.shape for each in maps.values()} == {(len(words), *GRID)}
    last = torch.stack(list(maps.values())[-HEADS:]).mean(dim=0)
    agree(last.flatten(1), caption.attention[: len(words)])
    assert len({float(each[0, 0, 0]) for each in maps.values()}) == LAYERS * HEADS
    assert_allclose(kept["mean"].reshape(5, -1), caption.attention[:5], rtol=1e-6)
    assert_allclose(kept["inter 3 2"], maps["inter 3 2"], rtol=1e-6)
    assert list(all_maps(None, context, caption)) == ["mean"]


@pytest.mark.parametrize("search", [greedy, partial(beam_search, length_penalty=0)])
@pytest.mark.parametrize("choice", ["argmax", "sample"])
def test_what_hard_attention_took(context, search, choice):
    """Read back by the model: with these locations its words have the likelihood that the search
    found.
    """
    torch.manual_seed(3)
    sizes = {"d_embed": 7, "d_hidden": 13, "attention.mode": choice}
    model = captioner("sat_hard", VOCABULARY, DIM, GRID, **sizes).double().eval()
    (caption,) = search(model, context, max_length=4)
    words = [token for token in caption.tokens if token != EOS]
    kept = all_maps(model, context, caption)
    assert list(kept) == ["mean", "attended"]  # one map per word besides: no names of heads
    assert list(caption_maps(model, context, words)) == ["alpha"]
    assert_allclose(kept["attended"].reshape(len(words), -1), caption.attended[: len(words)])
    locations = caption.attended.argmax(dim=-1)
    assert set(caption.attended.unique().tolist()) == {0.0, 1.0}
    if choice == "argmax":
        assert locations.tolist() == caption.attention.argmax(dim=-1).tolist()
    tokens = torch.tensor([[[BOS, *caption.tokens[:-1]]]])
    below = caption.attention.cumsum(dim=-1).gather(-1, locations[:, None]).squeeze(-1)
    uniform = below - caption.attention.gather(-1, locations[:, None]).squeeze(-1) / 2
    output = model(
        context, tokens, sampled=torch.tensor([True]), uniform=uniform[None, None].float()
    )
    said = log_probs(model.readout(output.hidden)[0], FORBIDDEN)[
        0, torch.arange(tokens.shape[-1]), caption.tokens
    ]
    assert said.sum().item() == pytest.approx(caption.score, rel=1e-9)


def heads(*rows):
    return torch.tensor([rows], dtype=torch.float64)


def test_rollout_of_two_layers_by_hand():
    weights = LayerWeights(
        logits=torch.zeros(1, 2, 3),
        encoder=[
            heads([[1, 0], [1, 0]], [[1, 0], [0, 1]])
        ],  # on average 1 0, 1/2 1/2; half of it: 1 0, 1/4 3/4
        text=[heads([[1, 0], [0.5, 0.5]]), heads([[1, 0], [1, 0]])],
        inter=[heads([[1, 0], [0, 1]]), heads([[0, 1], [1, 0]])],
        to_input_grid=lambda alpha: alpha,
    )
    # behind the first layer 1/2 0, 1/8 3/8; behind the text of the second 1/2 0, 5/16 3/16; in all
    # 3/8 3/8, 21/32 3/32
    agree(rollout(weights), heads([[0.5, 0.5], [0.875, 0.125]])[0])


@pytest.mark.parametrize("name", LAYERED)
def test_every_transformer(name, monkeypatch):
    """Its weights are those of its pass, and both maps lie on the photograph."""
    model, (context, tokens) = build(name), inputs(MASK if "transposed" not in name else None, n=1)
    found = layer_weights(model, context, tokens[:, 0])
    expected = model(context, tokens, need_weights=True)
    agree(found.logits, model.readout(expected.hidden)[:, 0])
    last = found.inter[-1] / found.inter[-1].sum(dim=-1, keepdim=True)
    agree(found.to_input_grid(last.mean(dim=1)), expected.attention[:, 0])
    joint = (
        [torch.cat(both, dim=-1) for both in zip(found.text, found.inter, strict=True)]
        if model.prefix
        else []
    )
    for alpha in [*found.encoder, *(joint or [*found.text, *found.inter])]:
        agree(alpha.sum(dim=-1), torch.ones(alpha.shape[:-1]).double())
    rolled = rollout(found)
    assert rolled.shape == (B, C, L)
    agree(rolled.sum(dim=-1), torch.ones(B, C).double())
    model.requires_grad_(False)
    given = model, context, tokens[:, 0], torch.tensor([0, C - 1]), torch.tensor([5, 7])
    slopes = gradient(*given)
    monkeypatch.setattr(pointing, "GRADIENTS_AT_ONCE", 1)
    agree(gradient(*given), slopes)  # words are looked at apart
    assert slopes.shape == (B, L)
    assert (slopes >= 0).all()
    agree(slopes.sum(dim=-1), torch.ones(B).double())
    if context.mask is not None:
        assert not slopes[~context.mask].any()
        assert not rolled.transpose(1, 2)[~context.mask].any()


def test_gradients_are_differences(monkeypatch):
    """Each weight of attention moved a little by itself: what the logit gains, followed through the
    layers by hand.
    """
    torch.manual_seed(0)
    sizes = {
        "max_tokens": 5,
        "d_model": 6,
        "heads": 2,
        "d_ff": 5,
        "encoder.layers": 2,
        "decoder_layers": 2,
    }
    model = captioner("spatial_transformer", 11, 5, (1, 3), **sizes).double().eval()
    context, tokens, step, word = (
        ContextSet(normal(1, 3, 5), (1, 3)),
        torch.tensor([[1, 7, 9]]),
        2,
        8,
    )
    found = gradient(model, context, tokens, torch.tensor([step]), torch.tensor([word]))[0]

    moved = None
    seen = []
    size = 0.0

    def attend(query, key, value, tau, mask, *_, **__):
        scores = query @ key.mT / tau
        alpha = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(dim=-1)
        seen.append(alpha)
        if moved is not None and moved[0] == len(seen) - 1:
            alpha = alpha.clone()
            alpha[0][moved[1]] += size
        return (alpha @ value).transpose(1, 2).flatten(2), alpha

    @torch.no_grad()
    def logit():
        seen.clear()
        return float(model.readout(model(context, tokens[:, None]).hidden)[0, 0, step, word])

    monkeypatch.setattr(layers, "attend", attend)
    logit()
    gains = []
    for number, alpha in enumerate([x[0].clone() for x in seen]):
        gain = np.zeros(alpha.shape)
        for place in product(*map(range, alpha.shape)):
            moved, size = (number, place), 1e-5
            above = logit()
            size = -1e-5
            gain[place] = max(0.0, (above - logit()) / 2e-5 * float(alpha[place]))
        gains.append(gain.mean(axis=0))
    first, second, *decoder = (
        gains  # the encoder's two layers, then of each layer of the decoder text and image
    )
    image = (np.eye(3) + second) @ (np.eye(3) + first) - np.eye(3)
    image = np.eye(3) + image / image.sum(axis=1, keepdims=True)
    reached = np.zeros((3, 3))
    for text, inter in zip(decoder[::2], decoder[1::2], strict=True):
        reached = (np.eye(3) + text) @ reached + inter @ image
    assert_allclose(found.numpy(), reached[step] / reached[step].sum(), rtol=1e-6)
