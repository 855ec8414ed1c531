"""Two backbones as one, against each alone."""

import pytest
import torch
from PIL import Image

from captioning.backbones.precomputed import Precomputed
from captioning.backbones.scratch import SmallCNN
from captioning.backbones.side_by_side import SideBySide
from captioning.backbones.timm import TimmBackbone
from captioning.backbones.torchvision import TorchvisionBackbone
from captioning.data.views import Change
from captioning.errors import CaptioningError

PIXELS = torch.randint(0, 256, (2, 4, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
PIXELS[:, 3] = 0
PIXELS[:, 3, 4:8] = 255


def cnn(seed: int, dim: int = 7, grid: int = 3, **settings: object) -> SmallCNN:
    torch.manual_seed(seed)
    return SmallCNN(dim, 12, grid, **{"trainable": False, "resize": "pad", **settings})


def test_along_features_a_place_has_those_of_both() -> None:
    first, second = cnn(0), cnn(1, dim=5)
    both = SideBySide(first, second)
    assert both.sizes == {"d_context": 12, "grid": (3, 3)}
    assert both.located
    first.scale.fill_(2.0)
    context, one, other = both.context(both(PIXELS)), first.context(first(PIXELS)), second.context(second(PIXELS))
    assert torch.equal(context.vectors, torch.cat([one.vectors, other.vectors], dim=2))
    assert torch.equal(context.mask, one.mask)
    assert torch.equal(both.present(PIXELS), one.mask)


def test_along_the_set_the_vectors_of_the_one_follow_the_others() -> None:
    first, second = cnn(0), cnn(1, grid=6)
    both = SideBySide(first, second, along="set")
    assert both.sizes == {"d_context": 7, "grid": (1, 45)}
    assert not both.located
    second.scale.fill_(2.0)
    context, one, other = both.context(both(PIXELS)), first.context(first(PIXELS)), second.context(second(PIXELS))
    assert torch.equal(context.vectors, torch.cat([one.vectors, other.vectors], dim=1))
    assert torch.equal(context.mask, torch.cat([one.mask, other.mask], dim=1))
    assert torch.equal(both.present(PIXELS), context.mask)
    assert both.present(both(PIXELS)).sum() == context.mask.sum() < 2 * 45


@pytest.mark.parametrize("resize", ["squash", "pad"])
def test_features_brought_along_join_those_of_a_network(resize: str) -> None:
    brought = Precomputed("absent", dim=7, regions=2)
    both = SideBySide(brought, cnn(0, resize=resize), along="set")
    assert both.reads_photographs
    assert both.transform == both.members[1].transform
    features = torch.ones(1, 2 + 9, 7)
    features[:, 1] = torch.nan
    context = both.context(features)
    assert context.mask.tolist() == [[True, False, *[True] * 9]]
    assert context.vectors.isfinite().all()
    assert torch.equal(both.present(features), context.mask)


def test_features_of_two_kinds_along_each_other_need_no_photographs() -> None:
    both = SideBySide(Precomputed("one", dim=2, regions=3), Precomputed("other", dim=1, regions=3))
    assert not both.reads_photographs
    features = torch.tensor([[[1.0, 2, 3], [torch.nan, torch.nan, 4], [torch.nan] * 3]])
    context = both.context(features)
    assert context.mask.tolist() == [[True, True, False]]
    assert context.vectors.tolist() == [[[1, 2, 3], [0, 0, 4], [0, 0, 0]]]


def test_each_is_trained_from_a_node_of_its_own_on() -> None:
    first, second = (
        TorchvisionBackbone("squeezenet1_1", "features.4", None, size=32, trainable=trainable)
        for trainable in (True, "features.4")
    )
    both = SideBySide(first, second)
    for view in (both, both.viewed(Change(mirror=True))):
        trained = [sum(p.requires_grad for p in member.parameters()) for member in view.members]
        assert trained == [14, 6]


def test_a_network_of_timm_sees_the_pixels_that_one_of_torchvision_sees() -> None:
    first = TorchvisionBackbone("squeezenet1_1", "features.4", None, size=32)
    with pytest.raises(CaptioningError, match="interpolation"):
        SideBySide(first, TimmBackbone("test_vit", None, size=32), along="set")
    second = TimmBackbone("test_vit", None, size=32, interpolation="bilinear")
    with pytest.raises(CaptioningError, match="vectors of one width"):  # but for that
        SideBySide(first, second, along="set")


def test_what_does_not_go_together() -> None:
    for second, along, message in (
        (cnn(1, grid=6), "features", "one grid"),
        (cnn(1, dim=5), "set", "one width"),
        (cnn(1, resize="crop"), "features", "set size"),
        (cnn(1, trainable=True), "features", "trainable"),
    ):
        with pytest.raises(CaptioningError, match=message):
            SideBySide(cnn(0), second, along=along)


def test_mirrored_both_read_mirrored_photographs_with_the_same_weights() -> None:
    both = SideBySide(cnn(0), cnn(1, dim=5))
    view = both.viewed(Change(mirror=True))
    image = Image.fromarray(PIXELS[0, :3].permute(1, 2, 0).numpy())
    assert torch.equal(view.transform.read(image), both.transform.read(image).flip(-1))
    assert view.digest != both.digest
    assert [p.data_ptr() for p in view.parameters()] == [p.data_ptr() for p in both.parameters()]
