"""Context sets that are not full, by hand; two backbones as one, against each alone."""

import pytest
import torch
from pictures import random_pixels
from PIL import Image

from captioning.backbones.context import on_photograph
from captioning.backbones.precomputed import Precomputed
from captioning.backbones.scratch import SmallCNN
from captioning.backbones.side_by_side import ConcatBackbone
from captioning.backbones.timm import TimmBackbone
from captioning.backbones.torchvision import TorchvisionBackbone
from captioning.data.views import Transform

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
    found = on_photograph(covered, grid).unflatten(1, grid)
    assert found.any(dim=2)[0].nonzero().flatten().tolist() == expected
    assert torch.equal(found.any(dim=2), found.all(dim=2))
    assert torch.equal(on_photograph(covered.mT, grid).unflatten(1, grid), found.mT)


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
    gradients = [parameter.grad for parameter in backbone.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("along, second", [("features", cnn(1, dim=5)), ("set", cnn(1, grid=6))])
def test_two_backbones_side_by_side(along, second):
    first, axis = cnn(), 2 if along == "features" else 1
    both = ConcatBackbone(first, second, along=along)
    sizes = {
        "features": {"d_context": 12, "grid": (3, 3)},
        "set": {"d_context": 7, "grid": (1, 45)},
    }
    assert (both.sizes, both.located) == (sizes[along], along == "features")
    first.scale.fill_(2.0)
    context = both.context(both(PIXELS))
    one, other = first.context(first(PIXELS)), second.context(second(PIXELS))
    assert torch.equal(context.vectors, torch.cat([one.vectors, other.vectors], dim=axis))
    mask = one.mask if axis == 2 else torch.cat([one.mask, other.mask], dim=1)
    assert torch.equal(context.mask, mask)
    assert torch.equal(both.valid_mask(PIXELS), context.mask)
    assert torch.equal(both.valid_mask(both(PIXELS)), context.mask)
    view = both.with_transform(Transform(mirror=True))  # with the same weights
    assert view.digest != both.digest
    assert [p.data_ptr() for p in view.parameters()] == [p.data_ptr() for p in both.parameters()]


def test_each_of_two_is_trained_from_a_node_of_its_own():
    both = ConcatBackbone(squeezenet(True), squeezenet("features.4"))
    for backbone in (both, both.with_transform(Transform(mirror=True))):
        trained = [sum(p.requires_grad for p in m.parameters()) for m in backbone.members]
        assert trained == [14, 6]


@pytest.mark.parametrize("resize", ["stretch", "pad"])
def test_features_computed_elsewhere_join_those_of_a_network_or_of_their_kind(resize):
    both = ConcatBackbone(Precomputed("absent", dim=7, regions=2), cnn(resize=resize), along="set")
    assert both.reads_photographs
    assert both.transform == both.members[1].transform
    features = torch.ones(1, 2 + 9, 7)
    features[:, 1] = torch.nan
    context = both.context(features)
    assert context.mask.tolist() == [[True, False, *[True] * 9]]
    assert context.vectors.isfinite().all()
    assert torch.equal(both.valid_mask(features), context.mask)
    both = ConcatBackbone(
        Precomputed("one", dim=2, regions=3), Precomputed("other", dim=1, regions=3)
    )
    assert not both.reads_photographs
    context = both.context(
        torch.tensor([[[1.0, 2, 3], [torch.nan, torch.nan, 4], [torch.nan] * 3]])
    )
    assert context.mask.tolist() == [[True, True, False]]
    assert context.vectors.tolist() == [[[1, 2, 3], [0, 0, 4], [0, 0, 0]]]


def squeezenet(trainable=False):
    return TorchvisionBackbone("squeezenet1_1", "features.4", None, size=32, trainable=trainable)


@pytest.mark.parametrize(
    "first, second, along, cause",
    [
        (cnn, lambda: cnn(1, grid=6), "features", "one grid"),
        (cnn, lambda: cnn(1, dim=5), "set", "one width"),
        (cnn, lambda: cnn(1, trainable=True), "features", "trainable"),
        (squeezenet, lambda: TimmBackbone("test_vit", None, size=32), "set", "interpolation"),
    ],
)
def test_what_does_not_go_together(first, second, along, cause):
    with pytest.raises(ValueError, match=cause):
        ConcatBackbone(first(), second(), along=along)
