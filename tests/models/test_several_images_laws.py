"""Context sets of several images, which stand one after the other on a grid each.

B examples of V images on a grid of (h, w), N captions, C positions, D features.
"""

import pytest
import torch
from models.captioners import CAPTIONERS, OPT, B, D, agree, build, inputs
from models.tensors import normal
from models.test_model_laws import hard, seen, stepped

from captioning.backbones.context import ContextSet, as_maps
from captioning.decoding.maps import caption_maps

pytestmark = pytest.mark.usefixtures("without_gradients")

GRID = (2, 3)
CELLS, IMAGES = 6, 3
ONE_IMAGE = ("flat", "pyramid", "recurrent", "rnn_search", "speech_location")
"""In names of systems that read all vectors of an image in their order, which training refuses."""
IN_ORDER = ("prefix model.conditioning=causal_prefix model.norm=pre", "language_model")
IN_ORDER += (f"language_model model.architecture={OPT}",)
"""Prefixes whose vectors see those before them."""
OF_SEVERAL = [name for name in CAPTIONERS if not any(part in name for part in ONE_IMAGE)]


def images(*order, mask=None):
    """Examples of some of `IMAGES` images in an order."""
    vectors = normal(B, IMAGES, CELLS, D)[:, list(order)].flatten(1, 2)
    return ContextSet(vectors, GRID, mask)


def on_images(found, order):
    """The results with their maps `[B, N, C, V h w]` in another order of the images."""
    size = len(order) * CELLS
    return [
        x.unflatten(-1, (-1, CELLS))[..., order, :].flatten(-2) if x.shape[3:] == (size,) else x
        for x in found
    ]


@pytest.mark.parametrize("name", [name for name in OF_SEVERAL if name not in IN_ORDER])
def test_the_order_of_images_without_embeddings_does_not_matter(name):
    model, (_, tokens) = build(name, grid=GRID), inputs()
    found = seen(model, images(0, 1, 2), tokens)
    changed = seen(model, images(2, 0, 1), tokens)
    agree(on_images(found, [2, 0, 1]), changed)
    assert not torch.equal(found[0], seen(model, images(0, 1), tokens)[0])


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_a_masked_image_is_none(name):
    model, (_, tokens) = build(name, grid=GRID), inputs()
    present = torch.arange(3 * CELLS).expand(B, -1) < 2 * CELLS
    found = seen(model, images(0, 1, 2, mask=present), tokens, **hard(model))
    expected = seen(model, images(0, 1), tokens, **hard(model))
    for one, other in zip(found, expected, strict=True):
        agree(one[..., : other.shape[-1]] if one.dim() == 4 else one, other)
        assert one.dim() != 4 or not one[..., other.shape[-1] :].any()
    steps = [stepped(model, images(0, 1, 2, mask=m), tokens) for m in (present, None)]
    agree(steps[0], stepped(model, images(0, 1), tokens))
    assert not torch.equal(*steps)


@pytest.mark.parametrize(
    "name",
    [
        "spatial_transformer model.encoder.positions=2d",
        "transformer model.encoder.positions=learned",
        "geometry",
        "transformer model/encoder=relative",
        "transformer model/encoder=transposed",
        "sat_soft model/score=location",
        "up_down model.attention.window=1",
    ],
)
def test_positions_begin_anew_in_each_image(name):
    """The same image twice is attended to alike, which one long image is not."""
    model, (_, tokens) = build(name, grid=GRID), inputs()
    *_, maps = seen(model, images(1, 1), tokens)
    first, second = maps.unflatten(-1, (2, CELLS)).unbind(-2)
    agree(first, second)
    assert first.std() > 1e-4


def test_maps_of_images_are_side_by_side():
    maps = as_maps(torch.arange(12), GRID)
    assert maps.tolist() == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11]]
    assert as_maps(torch.arange(6), GRID).tolist() == [[0, 1, 2], [3, 4, 5]]
    model = build("spatial_transformer", grid=GRID)
    one = ContextSet(normal(1, 2 * CELLS, D), GRID)
    assert caption_maps(model, one, [5, 6])["inter 1 1"].shape == (2, 2, 6)
