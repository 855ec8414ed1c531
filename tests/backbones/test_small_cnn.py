import pytest
import torch

from captioning.backbones import ContextSet
from captioning.backbones.scratch import SmallCNN
from captioning.errors import CaptioningError


def pictures(count: int, size: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("dim", "size", "grid"), [(128, 112, 14), (7, 10, 5), (11, 24, 3), (1, 2, 1)])
def test_shapes(dim: int, size: int, grid: int) -> None:
    backbone = SmallCNN(dim, size, grid)
    assert (backbone.dim, backbone.size, backbone.grid) == (dim, size, (grid, grid))
    assert backbone.transform.size == size
    assert backbone(pictures(2, size)).shape == (2, grid * grid, dim)


def test_features_start_at_unit_scale() -> None:
    torch.manual_seed(0)
    features = SmallCNN()(pictures(3, 112))
    assert features.square().mean().sqrt().item() == pytest.approx(1, abs=0.01)


def test_rows_are_grid_positions_in_row_order() -> None:
    torch.manual_seed(0)
    backbone = SmallCNN(7, 24, 3)
    images = pictures(2, 24)
    feature_map = backbone.network(backbone.transform.normalise(images))
    features = backbone(images)
    for row in range(3):
        for column in range(3):
            assert torch.equal(features[:, 3 * row + column], feature_map[:, :, row, column])


def test_an_image_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(0)
    backbone = SmallCNN(7, 24, 3).double()
    images = pictures(5, 24)
    features = backbone(images)
    assert features.dtype == torch.float64
    torch.testing.assert_close(features, torch.cat([backbone(image[None]) for image in images]))


def test_gradients_reach_every_parameter_only_when_trainable() -> None:
    torch.manual_seed(0)
    backbone = SmallCNN(7, 24, 3)
    backbone(pictures(2, 24)).pow(3).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in backbone.parameters())
    frozen = SmallCNN(7, 24, 3, trainable=False)
    assert not frozen(pictures(2, 24)).requires_grad
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_context_scales_in_the_models_precision() -> None:
    backbone = SmallCNN(7, 24, 3)
    features = torch.randn(2, 9, 7, generator=torch.Generator().manual_seed(0)).half()
    assert backbone.scale.item() == 1
    backbone.scale.fill_(0.3)
    context = backbone.context(features)
    assert isinstance(context, ContextSet)
    assert context.grid == (3, 3)
    assert context.mask is None
    torch.testing.assert_close(context.vectors, features.float() * 0.3)
    assert backbone.double().context(features).vectors.dtype == torch.float64


def test_scale_travels_with_the_checkpoint() -> None:
    source, target = SmallCNN(7, 24, 3), SmallCNN(7, 24, 3)
    source.scale.fill_(0.3)
    target.load_state_dict(source.state_dict())
    assert target.scale.item() == pytest.approx(0.3)
    assert target.digest == source.digest


def test_digest_follows_weights_and_settings() -> None:
    torch.manual_seed(0)
    backbone = SmallCNN(7, 24, 3)
    before = backbone.digest
    backbone.scale.fill_(3)
    assert backbone.digest == before
    with torch.no_grad():
        next(backbone.parameters())[0, 0, 0, 0] += 1
    assert backbone.digest != before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 100, "grid": 14}, "size=100 cannot be halved down to .*56, 112, 224"),
        ({"size": 14, "grid": 14}, "size=14 cannot be halved"),
        ({"size": 7, "grid": 14}, "size=7 cannot be halved"),
        ({"size": 0}, r"\nsize\n"),
        ({"dim": 0}, r"\ndim\n"),
        ({"grid": 0}, r"\ngrid\n"),
    ],
)
def test_impossible_settings(settings: dict[str, int], message: str) -> None:
    with pytest.raises((CaptioningError, ValueError), match=message):
        SmallCNN(**settings)
