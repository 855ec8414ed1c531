"""The maps of a decoded caption are those of the steps that decoded it."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from captioners import captioner

from captioning.backbones.context import ContextSet
from captioning.decoding import beam_search, greedy
from captioning.decoding.caption import FORBIDDEN, log_probs
from captioning.decoding.maps import all_maps, caption_maps
from captioning.tokens import BOS, EOS

GRID, DIM, VOCABULARY, LAYERS, HEADS = (2, 3), 5, 11, 3, 2
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture
def context() -> ContextSet:
    torch.manual_seed(7)
    return ContextSet(torch.randn(1, 6, DIM).double(), GRID)


def test_every_layer_and_head(context: ContextSet) -> None:
    sizes = {"max_tokens": 7, "d_feat": 14, "heads": HEADS, "d_hidden": 13, "decoder_layers": LAYERS}
    model = captioner("spatial_transformer", VOCABULARY, DIM, GRID, **sizes)
    (caption,) = greedy(model.double().eval(), context, max_length=7)
    words = caption.tokens[:5]
    maps = caption_maps(model, context, words)
    assert list(maps) == [f"inter {layer + 1} {head + 1}" for layer in range(LAYERS) for head in range(HEADS)]
    for each in maps.values():
        assert each.shape == (len(words), *GRID)
        torch.testing.assert_close(each.sum(dim=(1, 2)), torch.ones(len(words)).double(), **CLOSE)
    last = torch.stack(list(maps.values())[-HEADS:]).mean(dim=0)
    assert caption.attention is not None
    torch.testing.assert_close(last.flatten(1), caption.attention[: len(words)], **CLOSE)
    assert len({float(each[0, 0, 0]) for each in maps.values()}) == LAYERS * HEADS
    caption.tokens[5:] = [EOS]
    kept = all_maps(model, context, caption)
    assert list(kept) == ["mean", *maps]
    assert all(each.dtype == np.float32 for each in kept.values())
    np.testing.assert_allclose(kept["mean"].reshape(5, -1), caption.attention[:5], rtol=1e-6)
    np.testing.assert_allclose(kept["inter 3 2"], maps["inter 3 2"], rtol=1e-6)
    assert list(all_maps(None, context, caption)) == ["mean"]


def test_one_map(context: ContextSet) -> None:
    model = captioner("sat_soft", VOCABULARY, DIM, GRID, d_embed=7, d_hidden=13).double().eval()
    (caption,) = greedy(model, context, max_length=4)
    maps = caption_maps(model, context, caption.tokens)
    assert caption.attention is not None
    torch.testing.assert_close(maps, {"alpha": caption.attention.unflatten(1, GRID)}, **CLOSE)
    assert list(all_maps(model, context, caption)) == ["mean"]


@pytest.mark.parametrize("search", [greedy, partial(beam_search, length_penalty=0)])
@pytest.mark.parametrize("choice", ["argmax", "sample"])
def test_what_hard_attention_took(context: ContextSet, search: Any, choice: str) -> None:
    """Read back by the model: with these locations its words have the likelihood that the search found."""
    torch.manual_seed(3)
    model = captioner("sat_hard", VOCABULARY, DIM, GRID, d_embed=7, d_hidden=13, choice=choice).double().eval()
    (caption,) = search(model, context, max_length=4)
    words = [token for token in caption.tokens if token != EOS]
    kept = all_maps(model, context, caption)
    assert list(kept) == ["mean", "attended"]
    np.testing.assert_allclose(kept["attended"].reshape(len(words), -1), caption.attended[: len(words)])
    locations = caption.attended.argmax(dim=-1)
    assert set(caption.attended.unique().tolist()) == {0.0, 1.0}
    if choice == "argmax":
        assert locations.tolist() == caption.attention.argmax(dim=-1).tolist()
    tokens = torch.tensor([[[BOS, *caption.tokens[:-1]]]])
    below = caption.attention.cumsum(dim=-1).gather(-1, locations[:, None]).squeeze(-1)
    uniform = below - caption.attention.gather(-1, locations[:, None]).squeeze(-1) / 2
    output = model(context, tokens, sampled=torch.tensor([True]), uniform=uniform[None, None].float())
    said = log_probs(model.readout(output.hidden)[0], FORBIDDEN)[0, torch.arange(tokens.shape[-1]), caption.tokens]
    assert said.sum().item() == pytest.approx(caption.score, rel=1e-9)
