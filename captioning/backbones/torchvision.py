"""Backbones from torchvision by name and node: the front part of a classification network.

B images, L context vectors of D features on a grid of (h, w).
"""

import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from captioning.backbones.base import Backbone, Trainable, feature_map
from captioning.backbones.context import Grid
from captioning.backbones.images import FULL_RANGE, ImageTransform, Resize
from captioning.backbones.weights import (
    check_name,
    downloading,
    fixed_draws,
    load_weights,
    place_strides,
)
from captioning.config.types import PixelRange, PixelSize, validated

Dilation = Literal[1, 2, 4]
"""Factor by which the grid is finer than the network's own."""


class TorchvisionBackbone(Backbone):
    """A torchvision classification network up to and including one node.

    Nodes with a 14x14 grid: vgg11 `features.19` (D = 512), vgg19 `features.35` (512), resnet50 and
    resnet101 `layer3` (1024), all at size 224, and squeezenet1_1 `features.12` (512) at size 240.
    Swin transformers have their features last at `features.N`, which is noticed.

    `pool` averages the map to another grid, adaptively, as `torch.nn.AdaptiveAvgPool2d` does.

    Weights are downloaded (`DEFAULT`), random (None; if frozen, the same in every process and for
    every seed), or from a file, with or without the layers after the node.
    """

    @validated
    def __init__(
        self,
        name: str,
        node: str,
        weights: str | None,
        size: PixelSize = 224,
        trainable: Trainable = False,
        resize: Resize = "stretch",
        pixel_range: PixelRange = FULL_RANGE,
        stride_in_1x1: bool | None = None,
        dilation: Dilation = 1,
        pool: Grid | None = None,
    ):
        fixed = weights is not None or not trainable
        full = _full_network(name, weights == "DEFAULT", fixed).eval()
        place_strides(full, name, stride_in_1x1, weights)
        nodes = get_graph_node_names(full, suppress_diff_warning=True)[1]
        if not any(known.startswith(f"{node}.") for known in nodes):
            check_name("backbone.node", node, nodes, f"in {name}")
        extractor = create_feature_extractor(full, {node: "node"}, suppress_diff_warning=True)
        network = _Truncated(extractor).eval()
        load_weights(network.extractor, full.state_dict().keys(), weights)
        dilate(network, dilation, name)
        found = feature_map(network, node, size)
        network.features_last, network.pool = found.last, pool
        settings = f"torchvision {name} {node}{' stride in 1x1' if stride_in_1x1 else ''}"
        settings += f" dilation={dilation}" if dilation > 1 else ""
        settings += f" pooled to {pool}" if pool else ""
        transform = ImageTransform(size, resize=resize, pixel_range=pixel_range)
        super().__init__(settings, network, found.dim, pool or found.grid, transform, trainable)
        self.pretrained = weights is not None


class _Truncated(nn.Module):
    """The single output of a feature extractor, which returns a dict, as `[B, D, h, w]`."""

    features_last = False  # in the extractor's output, as in those of Swin transformers
    pool: Grid | None = None

    def __init__(self, extractor: nn.Module):
        super().__init__()
        self.extractor = extractor

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.extractor(images)["node"]
        if self.features_last:
            output = output.movedim(3, 1)
        return output if self.pool is None else adaptive_avg_pool2d(output, self.pool)


def _full_network(name: str, download: bool, fixed: bool) -> nn.Module:
    """The full network; with `fixed`, random weights are always the same."""
    names = torchvision.models.list_models(torchvision.models)
    check_name("backbone.name", name, names, "a torchvision network")
    url = str(torchvision.models.get_model_weights(name).DEFAULT.url)
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    context = downloading(name, url, str(path)) if download else nullcontext()
    with fixed_draws(fixed), warnings.catch_warnings(), context:
        # Two old networks warn about slow random initialisation.
        warnings.filterwarnings("ignore", "The default weight initialization", FutureWarning)
        return torchvision.models.get_model(name, weights="DEFAULT" if download else None)


def dilate(network: nn.Module, dilation: Dilation, name: str) -> None:
    """Make the grid of a chain of layers such as VGG finer, in place (Yu and Koltun 2016).

    The last poolings keep their window but lose their stride, and later layers are dilated by 2 or
    4, so that every kernel gets the inputs it was trained on: the fine grid contains the features
    of the coarse one at every second or fourth row and column. (D) Without the window it would not.
    Convolutions and 2x2 poolings must be registered in the order in which the network applies them.
    """
    if dilation == 1:
        return
    halvings = dilation.bit_length() - 1
    pools = [path for path, layer in network.named_modules() if isinstance(layer, nn.MaxPool2d)]
    if not name.startswith("vgg") or len(pools) < halvings:
        raise ValueError(
            f"backbone.dilation={dilation} needs a VGG with {halvings} or more poolings before the "
            f"node; {name} is not one: leave it at 1"
        )
    spread = 1
    for path, layer in list(network.named_modules()):
        if isinstance(layer, nn.Conv2d):
            layer.dilation = layer.padding = (spread, spread)
        elif path in pools[-halvings:]:
            # There are as many positions as in the input: windows may extend beyond the edge.
            edge = nn.ConstantPad2d((0, spread, 0, spread), float("-inf"))
            pool = nn.MaxPool2d(2, stride=1, dilation=spread)
            network.set_submodule(path, nn.Sequential(edge, pool))
            spread *= 2
