"""D and the grid of every classification network of torchvision, known from its classifier and its
stride: none is taken with its axes exchanged.

Nothing is computed: PyTorch's device `meta` has shapes alone.
"""

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models.regnet import BlockParams

from captioning.backbones.base import feature_map
from captioning.backbones.torchvision import TorchvisionBackbone

# of two old networks, about slow random initialisation
pytestmark = pytest.mark.filterwarnings("ignore:The default weight init:FutureWarning")

SIZE = 224
NETWORKS = torchvision.models.list_models(torchvision.models)
FIRST = ("alexnet", "convnext_tiny", "mobilenet_v3_small", "resnet18", "squeezenet1_1", "swin_t")
FIRST += ("swin_v2_t", "vgg11", "vit_b_16")
"""Fast ones of different families; `make soak` has all, at one to six seconds each."""

STAGES = {
    "convnext": ("features.7", "features.5"),
    "google": ("inception5b",),
    "inception": ("Mixed_7c",),
    "maxvit": ("blocks.3",),
    "mnasnet": ("layers",),
    "regnet": ("trunk_output",),
    "resn": ("layer4", "layer3"),
    "wide_resnet": ("layer4", "layer3"),
    "shufflenet": ("conv5",),
    "swin": ("features.7", "features.5"),
    "vit": ("conv_proj",),
}
"""Last stages by the beginning of a name, `features` of the others; an earlier one has half as many
features at half the stride.
"""
SIDES = {"alexnet": 6, "inception": 5, "squeezenet": 13, "vit_b_16": 14, "vit_l_16": 14}
SIDES |= {"vit_h_14": 16}
"""Of the last stage's grid at size 224, 7 of the others, which have a stride of 32."""


@pytest.fixture(autouse=True)
def shapes_alone(monkeypatch):
    """Build on the device `meta`, except for the widths of RegNets, which are computed."""
    widths = BlockParams.from_init_params

    def computed(*args, **kwargs):
        with torch.device("cpu"):
            return widths(*args, **kwargs)

    monkeypatch.setattr(BlockParams, "from_init_params", computed)
    with torch.device("meta"):
        yield


def of(table, name, default):
    return next((value for start, value in table.items() if name.startswith(start)), default)


def width(name):
    """Of the map that the classifier pools."""
    full = torchvision.models.get_model(name, weights=None)
    heads = [part for part in ("fc", "head", "heads", "classifier") if hasattr(full, part)]
    layers = [
        layer
        for layer in full.get_submodule(heads[0]).modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
    ]
    if isinstance(layers[0], nn.Conv2d):
        return layers[0].in_channels
    return layers[0].in_features // of({"alexnet": 6 * 6, "vgg": 7 * 7}, name, 1)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FIRST else pytest.mark.soak) for name in NETWORKS],
)
def test_every_network(name):
    for halvings, node in enumerate(of(STAGES, name, ("features",))):
        dim = width(name) >> halvings
        side = of(SIDES, name, 7) << halvings
        backbone = TorchvisionBackbone(name, node, None, SIZE)
        assert (backbone.dim, backbone.grid) == (dim, (side, side)), node
        pixels = torch.zeros(2, 3, SIZE, SIZE, dtype=torch.uint8)
        assert backbone(pixels).shape == (2, side * side, dim)


@pytest.mark.parametrize(
    "name, node, size, expected",
    [
        ("swin_t", "features.1", 384, (96, 96)),  # `[B, h, w, D]` with h = w = D
        ("resnet18", "layer1", 256, (64, 64)),  # `[B, D, h, w]`
        ("swin_t", "features.7", 32, (768, 1)),
        ("swin_t", "permute", 64, (768, 2)),  # the library itself moves the axes
        ("alexnet", "avgpool", 224, (256, 6)),
    ],
)
def test_axes_of_equal_length(name, node, size, expected):
    backbone = TorchvisionBackbone(name, node, None, size)
    assert (backbone.dim, backbone.grid[0]) == expected
    last = name == "swin_t" and node != "permute"
    assert backbone.network.features_last == last


@pytest.mark.parametrize(
    "network",
    [
        nn.AvgPool2d((2, 4)),  # [1, 3, 4, 2]
        nn.Flatten(2),  # [1, 3, 64]
        nn.Unflatten(2, (2, 4)),  # five axes
        nn.Sequential(nn.Unflatten(2, (2, 4)), nn.Flatten(0, 1), nn.AvgPool3d((1, 2, 2))),
    ],
    ids=str,
)
def test_what_is_no_map_is_refused(network):
    with pytest.raises(ValueError, match=r"backbone\.node=features"):
        feature_map(network, "features", 8)
