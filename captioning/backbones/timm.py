"""Backbones from timm by name and node: its convolutional networks and vision transformers.

B images, L context vectors of D features on a grid of (h, w).
"""

import sys
from typing import Any

from torch import Tensor, nn

from captioning.backbones.base import Backbone, Trainable, feature_map
from captioning.backbones.images import FULL_RANGE, ImageTransform, Interpolation, Resize
from captioning.backbones.lite2 import NAMES, Lite2
from captioning.backbones.weights import (
    check_name,
    downloading,
    fixed_draws,
    load_weights,
    place_strides,
)
from captioning.config.types import PixelRange, PixelSize, validated
from captioning.pretrained.named import PRETRAINED, checkpoint_path

BUNDLED = "bundled"
"""Weights inside the bundled captioner."""


class TimmBackbone(Backbone):
    """A timm network up to one of its nodes, with its mean, deviation and interpolation.

    The output at a node of a vision transformer is that of its patches, in row order of the grid,
    after the final normalisation (D: without it a few of the D features dominate), without class
    and register tokens. Defaults are the network's last node and its own size and interpolation;
    learned positions are resized. EfficientNet-Lite2 needs no timm, unless its ImageNet weights are
    downloaded or its activations are computed twice.
    """

    @validated
    def __init__(
        self,
        name: str,
        weights: str | None,
        node: str | None = None,
        size: PixelSize | None = None,
        trainable: Trainable = False,
        resize: Resize = "stretch",
        pixel_range: PixelRange = FULL_RANGE,
        checkpointing: bool = False,
        stride_in_1x1: bool | None = None,
        interpolation: Interpolation | None = None,
    ):
        if weights == BUNDLED:
            check_name("backbone.name", name, NAMES, f"the network of backbone.weights={BUNDLED}")
            weights = str(checkpoint_path(PRETRAINED))
        ours = name in NAMES and weights != "DEFAULT" and not checkpointing
        with fixed_draws(weights is not None or not trainable):
            full: Any = Lite2() if ours else _network(name, weights)
        place_strides(full, name, stride_in_1x1, weights)
        known = full.state_dict().keys()
        nodes = [stage["module"] for stage in full.feature_info]
        if node is None:
            node = nodes[-1]
        check_name("backbone.node", node, nodes, f"a node of {name}")
        network = _Truncated(full, nodes.index(node)).eval()
        # timm's own, of the names of open_clip and of the networks' authors
        convert = getattr(sys.modules[type(full).__module__], "checkpoint_filter_fn", None)
        load_weights(full, known, weights, convert)
        if checkpointing:
            full.set_grad_checkpointing(True)
        own = full.pretrained_cfg
        size = _resize(full, name, own["input_size"][-1], size)
        found = feature_map(network, node, size)
        settings = f"timm {name.partition('.')[0]} {node}"
        if stride_in_1x1:
            settings += " stride in 1x1"
        transform = ImageTransform(
            size,
            tuple(own["mean"]),
            tuple(own["std"]),
            resize,
            interpolation or own["interpolation"],
            pixel_range,
        )
        super().__init__(settings, network, found.dim, found.grid, transform, trainable)
        self.pretrained = weights is not None


class _Truncated(nn.Module):
    def __init__(self, network: Any, index: int):
        super().__init__()
        self.extractor = network
        (self.index,) = network.prune_intermediate_layers(
            [index], prune_norm=False, prune_head=True
        )
        # timm does not normalise its feature maps
        self.norm = not type(network).__name__.startswith("Hiera")

    def forward(self, images: Tensor) -> Tensor:
        (output,) = self.extractor.forward_intermediates(
            images,
            indices=[self.index],
            norm=self.norm,
            stop_early=True,
            output_fmt="NCHW",
            intermediates_only=True,
        )
        return output


def _network(name: str, weights: str | None) -> Any:
    """The full network."""
    import timm  # here, because it takes seconds

    names = sorted({*timm.list_models(), *timm.list_models(pretrained=True)})
    check_name(
        "backbone.name", name, names, "one of timm's networks, which timm.list_models() lists"
    )
    if weights != "DEFAULT":
        return timm.create_model(name)
    source: Any = timm.get_pretrained_cfg(name)
    address = f"https://huggingface.co/{source.hf_hub_id}/resolve/main/model.safetensors"
    with downloading(name, address if source.hf_hub_id else source.url):
        return timm.create_model(name, pretrained=True)


def _resize(network: Any, name: str, own: int, size: int | None) -> int:
    """Set an image size other than the network's default, if the network needs to know it."""
    if size is None or size == own:
        return own
    patch = getattr(getattr(network, "patch_embed", None), "patch_size", None) or 1
    side = max(patch) if isinstance(patch, tuple) else patch
    if size % side:  # timm would ignore the last rows and columns
        raise ValueError(
            f"backbone.size={size} is not a multiple of the patch size of {name}, {side} pixels"
        )
    if hasattr(network, "set_input_size"):
        network.set_input_size(img_size=(size, size))
    return size
