"""The maps of a decoded caption are those of the steps that decoded it."""

import numpy as np
import pytest
import torch
from captioners import captioner

from captioning.backbones.context import ContextSet
from captioning.decoding import greedy
from captioning.decoding.maps import all_maps, caption_maps
from captioning.tokens import EOS

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
