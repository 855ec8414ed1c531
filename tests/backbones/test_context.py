"""Context sets that are not full, by hand."""

import pytest
import torch
from models.tensors import has_gradients
from pictures import random_pixels
from PIL import Image

from captioning.backbones.context import on_image
from captioning.backbones.scratch import SmallCNN

PIXELS = random_pixels(2, 4, 12, 12)
PIXELS[:, 3] = 0
PIXELS[:, 3, 4:8] = 255


@pytest.mark.parametrize(
    "rows, grid, expected",
    [
        (slice(0, 12), (4, 4), [0, 1, 2, 3]),
        (slice(2, 10), (4, 4), [1, 2]),  # the centres of 3 pixels are at 1.5, 4.5, 7.5, 10.5
        (slice(1, 11), (4, 4), [0, 1, 2, 3]),
        (slice(2, 10), (3, 3), [0, 1, 2]),  # at 2, 6 and 10: edges count
        (slice(3, 10), (3, 3), [1, 2]),
        (slice(3, 9), (3, 3), [1]),
        (slice(6, 7), (4, 4), [2]),  # no centre at all
        (slice(6, 7), (3, 3), [1]),
    ],
)
def test_a_cell_is_on_the_photograph_if_its_centre_is(rows, grid, expected):
    covered = torch.zeros(1, 12, 12, dtype=torch.uint8)
    covered[0, rows] = 255
    found = on_image(covered, grid).unflatten(1, grid)
    assert found.any(dim=2)[0].nonzero().flatten().tolist() == expected
    assert torch.equal(found.any(dim=2), found.all(dim=2))
    assert torch.equal(on_image(covered.mT, grid).unflatten(1, grid), found.mT)


def cnn(seed=0, dim=7, grid=3, **settings):
    torch.manual_seed(seed)
    return SmallCNN(dim, 12, grid, **{"trainable": False, "resize": "pad", **settings})


def test_a_padded_photographs_context_set_has_the_cells_on_it():
    backbone = cnn(trainable=True)
    backbone.scale.fill_(3.0)
    # a photograph of 3 to 1, and a square one, which fills its square
    photographs = [Image.new("RGB", size, (200, 90, 9)) for size in ((30, 10), (9, 9))]
    pixels = torch.stack([backbone.transform.read(image) for image in photographs])
    context = backbone.context(backbone(pixels))
    assert context.mask.tolist() == [[False] * 3 + [True] * 3 + [False] * 3, [True] * 9]
    assert torch.equal(backbone.valid_mask(pixels), context.mask)
    plain = cnn(resize="stretch").context(cnn(resize="stretch")(pixels[:, :3]))  # the same weights
    assert plain.mask is None
    torch.testing.assert_close(context.vectors[context.mask], 3 * plain.vectors[context.mask])
    assert not context.vectors[~context.mask].any()
    context.mean().sum().backward()
    assert has_gradients(backbone)
