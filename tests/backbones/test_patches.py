"""Patches of pixels cut out with slices and multiplied by hand; G rows and columns."""

import pytest
import torch
from torch import Tensor

from captioning.backbones.scratch import Patches
from captioning.errors import CaptioningError


def pictures(count: int, size: int) -> Tensor:
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("grid", "patch"), [(7, None), (7, 3), (7, 4), (7, 8), (3, 7), (1, 21), (21, 5)])
def test_every_vector_is_its_patch_times_one_matrix(grid: int, patch: int | None) -> None:
    backbone = Patches(dim=5, size=21, grid=grid, patch=patch).double()
    images = pictures(2, 21)
    features = backbone(images)
    assert backbone.sizes == {"d_context": 5, "grid": (grid, grid)}
    assert features.shape == (2, grid * grid, 5)
    (weight, bias), stride = backbone.network.parameters(), 21 // grid
    patch = patch or stride
    assert weight.shape == (5, 3, patch, patch)
    pixels = backbone.transform.normalise(images).double()
    for row in range(grid):
        for column in range(grid):
            top, left = (stride * i - (patch - stride) // 2 for i in (row, column))
            seen = torch.zeros(2, 3, patch, patch).double()  # 0 is the mean colour
            for y in range(max(0, top), min(21, top + patch)):
                for x in range(max(0, left), min(21, left + patch)):
                    seen[:, :, y - top, x - left] = pixels[:, :, y, x]
            expected = seen.flatten(1) @ weight.flatten(1).T + bias
            torch.testing.assert_close(features[:, grid * row + column], expected, rtol=0, atol=1e-6)


def test_features_start_at_the_scale_of_the_pixels() -> None:
    torch.manual_seed(0)
    backbone = Patches(dim=512, size=32, grid=4)
    pixels = torch.randn(8, 3, 32, 32)
    assert backbone.network(pixels).square().mean().sqrt().item() == pytest.approx(1, abs=0.05)


def test_it_is_trained_and_can_be_frozen() -> None:
    Patches(dim=5, size=21, grid=3)(pictures(2, 21)).pow(3).sum().backward()
    assert not Patches(dim=5, size=21, grid=3, trainable=False)(pictures(2, 21)).requires_grad


def test_the_digest_knows_what_the_weights_do_not() -> None:
    torch.manual_seed(0)
    one, other = Patches(dim=5, size=20, grid=10, patch=4), Patches(dim=5, size=20, grid=5, patch=4)
    other.load_state_dict(one.state_dict())
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 100}, "size=100 is not a multiple of backbone.grid=14; with this grid it can be 98, 112"),
        ({"size": 7}, "size=7 is not a multiple of backbone.grid=14; with this grid it can be 14"),
        ({"patch": 7}, r"patch=7 would leave pixels .* unseen; .*must be at least 8"),
        ({"grid": 0}, r"\ngrid\n"),
    ],
)
def test_impossible_settings(settings: dict[str, int], message: str) -> None:
    with pytest.raises((CaptioningError, ValueError), match=message):
        Patches(**settings)
