"""The small convolutional network; patches of pixels cut out with slices and multiplied by hand."""

import pytest
import torch
from pictures import random_pixels
from torch.testing import assert_close

from captioning.backbones.scratch import Patches, SmallCNN


def pictures(count, size):
    return random_pixels(count, 3, size, size)


@pytest.mark.parametrize("dim, size, grid", [(128, 112, 14), (7, 10, 5), (11, 24, 3), (1, 2, 1)])
def test_rows_are_grid_positions_in_row_order_whatever_the_batch(dim, size, grid):
    torch.manual_seed(0)
    backbone = SmallCNN(dim, size, grid)
    assert (backbone.dim, backbone.size, backbone.grid) == (dim, size, (grid, grid))
    images = pictures(3, size)
    features, feature_map = backbone(images), backbone.network(backbone.transform.normalise(images))
    assert features.shape == (3, grid * grid, dim)
    for row in range(grid):
        for column in range(grid):
            assert torch.equal(features[:, grid * row + column], feature_map[:, :, row, column])
    if dim > 1:  # otherwise GroupNorm refuses a single number
        assert features.square().mean().sqrt().item() == pytest.approx(1, abs=0.05)  # at unit scale
        features = backbone.double()(images)
        assert features.dtype == torch.float64
        assert_close(features, torch.cat([backbone(image[None]) for image in images]))


def test_photographs_that_need_several_passes_keep_their_order():
    torch.manual_seed(0)
    backbone, images = SmallCNN(5, 320, 10, trainable=False), pictures(8, 320)
    assert_close(backbone(images), torch.cat([backbone(image[None]) for image in images]))
    assert backbone(images[:0]).shape == (0, 100, 5)


def test_context_scales_in_the_models_precision():
    backbone = SmallCNN(7, 24, 3)
    features = torch.randn(2, 9, 7, generator=torch.Generator().manual_seed(0)).half()
    assert backbone.scale.item() == 1
    backbone.scale.fill_(0.3)
    context = backbone.context(features)
    assert (context.grid, context.mask) == ((3, 3), None)
    assert_close(context.vectors, features.float() * 0.3)
    assert backbone.double().context(features).vectors.dtype == torch.float64


def test_scale_travels_with_the_checkpoint_and_digests_with_weights():
    source, target = SmallCNN(7, 24, 3), SmallCNN(7, 24, 3)
    source.scale.fill_(0.3)
    target.load_state_dict(source.state_dict())
    assert target.scale.item() == pytest.approx(0.3)
    target.scale.fill_(3)
    assert target.digest == source.digest
    with torch.no_grad():
        next(target.parameters())[0, 0, 0, 0] += 1
    assert target.digest != source.digest
    one, other = Patches(dim=5, size=20, grid=10, patch=4), Patches(dim=5, size=20, grid=5, patch=4)
    other.load_state_dict(one.state_dict())
    assert one.digest != other.digest  # of what the weights do not tell


@pytest.mark.parametrize(
    "grid, patch", [(7, None), (7, 3), (7, 4), (7, 8), (3, 7), (1, 21), (21, 5)]
)
def test_every_vector_is_its_patch_times_one_matrix(grid, patch):
    backbone = Patches(dim=5, size=21, grid=grid, patch=patch).double()
    images = pictures(2, 21)
    features = backbone(images)
    assert backbone.sizes == {"d_context": 5, "grid": (grid, grid)}
    assert features.shape == (2, grid * grid, 5)
    (weight, bias), stride = backbone.network.parameters(), 21 // grid
    patch = patch or stride
    assert weight.shape == (5, 3, patch, patch)
    before = (patch - stride) // 2
    pixels = backbone.transform.normalise(images).double()
    edges = (before, patch - stride - before) * 2
    padded = torch.nn.functional.pad(pixels, edges)  # 0 is the mean colour
    for row in range(grid):
        for column in range(grid):
            top, left = stride * row, stride * column
            seen = padded[:, :, top : top + patch, left : left + patch]
            expected = seen.flatten(1) @ weight.flatten(1).T + bias
            vector = features[:, grid * row + column]
            assert_close(vector, expected, rtol=0, atol=1e-6)
