"""Two backbones as one, against each alone."""

import pytest
import torch
from backbones.test_context import PIXELS, cnn

from captioning.backbones.precomputed import Precomputed
from captioning.backbones.timm import TimmBackbone
from captioning.backbones.torchvision import TorchvisionBackbone
from captioning.data.views import Transform
from experiments.two_backbones.side_by_side import ConcatBackbone


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
    assert both.reads_images
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
    assert not both.reads_images
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
