"""A dilated network against the network itself, and its layers worked out on paper."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torchvision.models.vgg import cfgs, make_layers

from captioning.backbones.torchvision import Dilation, TorchvisionBackbone, dilate
from captioning.errors import CaptioningError


@pytest.mark.parametrize("dilation", [2, 4])
@torch.no_grad()
def test_the_coarse_grid_is_within_the_fine_one_to_its_edges(dilation: Dilation) -> None:
    torch.manual_seed(0)
    coarse = make_layers(cfgs["A"])[:20].double()  # vgg11 to features.19
    fine = deepcopy(coarse)
    dilate(fine, dilation, "vgg11")
    assert [*fine.state_dict()] == [*coarse.state_dict()]
    images = torch.randn(2, 3, 64, 48).double()
    one, other = coarse(images), fine(images)
    assert (one.shape[2:], other.shape[2:]) == ((4, 3), (4 * dilation, 3 * dilation))
    torch.testing.assert_close(other[:, :, ::dilation, ::dilation], one, rtol=0, atol=1e-12)
    assert (other[:, :, 1::dilation] - other[:, :, ::dilation]).abs().mean() > 0.01 * one.abs().mean()  # and finer


@pytest.mark.parametrize(("dilation", "side"), [(1, 14), (2, 28), (4, 56)])
def test_what_the_papers_grid_becomes(dilation: Dilation, side: int) -> None:
    network = nn.Sequential(*(nn.MaxPool2d(2, 2) for _ in range(4)))
    dilate(network, dilation, "vgg")
    assert network(torch.zeros(1, 1, 224, 224)).shape[2:] == (side, side)


def test_on_paper() -> None:
    """A row of pixels, 1 2 3 4 5 6 7 8: pooled by twos, then a kernel that subtracts the left neighbour from the right.

    Coarse: 2 4 6 8 -> 4 4 4 -6. Fine: the maxima of neighbours 2 3 4 5 6 7 8 8, and neighbours are two apart.
    """
    pixels = torch.arange(1.0, 9).expand(1, 1, 8, 8)
    convolution = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    convolution.weight.data = torch.zeros(1, 1, 3, 3)
    convolution.weight.data[0, 0, 1] = torch.tensor([-1.0, 0, 1])
    network = nn.Sequential(nn.MaxPool2d(2, 2), convolution)
    assert network(pixels)[0, 0, 1].tolist() == [4, 4, 4, -6]
    dilate(network, 2, "paper")
    assert network(pixels)[0, 0, 1].tolist() == [4, 5, 4, 4, 4, 3, -6, -7]


def test_as_a_backbone() -> None:
    """Its digest is not the undilated one's, which has the same weights."""
    backbone = TorchvisionBackbone("vgg11", "features.19", None, size=32, dilation=4)
    assert backbone.grid == (8, 8)
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert backbone(images).shape == (2, 64, 512)
    before = backbone.digest
    backbone.settings = "torchvision vgg11 features.19"
    assert backbone.digest != before


@pytest.mark.parametrize(("name", "node"), [("squeezenet1_1", "features.7"), ("resnet18", "layer1")])
def test_what_has_other_strides_cannot_be_dilated(name: str, node: str) -> None:
    with pytest.raises(CaptioningError, match=f"dilation=2 .*{name}"):
        TorchvisionBackbone(name, node, None, size=48, dilation=2)


def test_what_has_too_few_poolings_cannot_be_dilated() -> None:
    with pytest.raises(CaptioningError, match=r"2 or more before the node"):
        dilate(make_layers(cfgs["A"])[:4], 4, "vgg11")
