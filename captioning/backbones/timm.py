"""Backbones from timm by name and node: its convolutional networks and vision transformers.

B images, L context vectors of D features on a grid of (h, w).
"""

import difflib
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from captioning.backbones.base import Backbone, Trainable, feature_map
from captioning.backbones.efficientnet_lite import VARIANTS, EfficientNetLite
from captioning.backbones.images import ImageTransform, Interpolation, Resize
from captioning.backbones.weights import fill, fixed_draws, place_strides
from captioning.config.types import PixelSize, validated
from captioning.errors import CaptioningError, quoted


class TimmBackbone(Backbone):
    """A network of timm up to and including one of its nodes, by its own mean, deviation and interpolation.

    The output at a node of a vision transformer is that of its patches, in rows of the grid and after the final
    normalisation (D: without it few of the D features drown the others); class and register tokens are left out.
    """

    @validated
    def __init__(
        self,
        name: str,
        weights: str | None,
        node: str | None = None,
        size: PixelSize | None = None,
        trainable: Trainable = False,
        resize: Resize = "squash",
        checkpointing: bool = False,
        stride_in_1x1: bool | None = None,
        interpolation: Interpolation | None = None,
    ) -> None:
        """Build the network, load its weights and leave out what comes after `node`.

        Args:
            name: the network's name in timm, with or without the tag of its weights.
            weights: as of `TorchvisionBackbone`; `DEFAULT` has timm download those of the tag, a file has timm's names.
            node: the node whose output is the feature map, one of those that timm lists for the network; None is the
                last one.
            size: side of the square images in pixels; None is the network's own. Where positions were learned they
                are resized, if the network can.
            trainable: as of `TorchvisionBackbone`, as for resize and stride_in_1x1.
            resize: see `ImageTransform`.
            checkpointing: training computes activations twice, to hold fewer of them.
            stride_in_1x1: see `TorchvisionBackbone`.
            interpolation: of photographs when they are resized; None is the network's own. Side by side with a network
                of torchvision it is to be bilinear.
        """
        architecture = name.partition(".")[0]
        with fixed_draws(weights is not None or not trainable):
            full = _network(name, weights, checkpointing)
        place_strides(full, name, stride_in_1x1, weights)
        known = full.state_dict().keys()
        node, index = _find(full, name, node)
        network = _Truncated(full, index).eval()
        if weights not in (None, "DEFAULT"):
            fill(full, known, Path(weights).expanduser(), name)
        if checkpointing:
            _save_memory(full, name)
        own = full.pretrained_cfg
        size = _resize(full, name, own["input_size"][-1], size)
        dim, height, width = feature_map(network, name, node, size, f"; its own is {own['input_size'][-1]}")
        settings = f"timm {architecture} {node}{' stride in 1x1' if stride_in_1x1 else ''}"
        mean, std, sampling = tuple(own["mean"]), tuple(own["std"]), interpolation or own["interpolation"]
        transform = ImageTransform(size, mean, std, resize=resize, interpolation=sampling)
        super().__init__(settings, network, dim, (height, width), transform, trainable)


class _Truncated(nn.Module):
    """The output at one node."""

    def __init__(self, network: Any, index: int) -> None:
        super().__init__()
        self.extractor: Any = network
        (self.index,) = network.prune_intermediate_layers([index], prune_norm=False, prune_head=True)
        self.norm = not type(network).__name__.startswith("Hiera")  # whose feature maps timm does not normalise

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor
        (output,) = self.extractor.forward_intermediates(
            images, indices=[self.index], norm=self.norm, stop_early=True, output_fmt="NCHW", intermediates_only=True
        )
        return output


def _network(name: str, weights: str | None, checkpointing: bool) -> Any:
    """The whole network; ours, which equals timm's and imports faster, where a checkpoint fills it."""
    lite = name.removesuffix(".in1k")
    if lite in VARIANTS and weights is None and not checkpointing:
        return EfficientNetLite(lite)
    import timm  # here, because that takes seconds

    _check(name)
    return _pretrained(name) if weights == "DEFAULT" else timm.create_model(name)


def _check(name: str) -> None:
    import timm

    names = {*timm.list_models(), *timm.list_models(pretrained=True)}
    if name not in names:
        near = difflib.get_close_matches(name, sorted(names), 5)
        hint = f"near it: {', '.join(near)}" if near else f"it has {len(names)}: timm.list_models() lists them"
        raise CaptioningError(f"backbone.name={quoted(name)} is not a timm network; {hint}")


def _pretrained(name: str) -> Any:
    import timm
    from huggingface_hub import hf_hub_url

    try:
        return timm.create_model(name, pretrained=True)
    except Exception as error:  # its client of the hub raises what it likes; a full disk; there are none
        network: Any = timm.create_model(name)
        source = network.pretrained_cfg
        repository, file = source.get("hf_hub_id"), source.get("hf_hub_filename") or "model.safetensors"
        place = hf_hub_url(repository, file) if repository else source.get("url")
        advice = f"Fetch {place} by other means and set backbone.weights=FILE" if place else "There are none to fetch"
        raise CaptioningError(f"cannot get timm's weights for {name}: {quoted(error)}. {advice}") from error


def _find(network: Any, name: str, node: str | None) -> tuple[str, int]:
    """The name and the number of a node."""
    nodes = [stage["module"] for stage in network.feature_info]
    if node is None:
        return nodes[-1], len(nodes) - 1
    if node not in nodes:
        raise CaptioningError(f"backbone.node={quoted(node)} is not a node of {name}; allowed: {', '.join(nodes)}")
    return node, nodes.index(node)


def _resize(network: Any, name: str, own: int, size: int | None) -> int:
    """Set another image size than a network's own, where it has to know."""
    if size is None or size == own:
        return own
    patch = getattr(getattr(network, "patch_embed", None), "patch_size", None) or 1
    side = max(patch) if isinstance(patch, tuple) else patch
    if size % side:  # timm would leave out the last rows and columns
        allowed = ", ".join(str(side * count) for count in (size // side, size // side + 1) if count)
        raise CaptioningError(
            f"{name} reads patches of {side} pixels, and backbone.size={size} is not a multiple of that; near it: "
            f"{allowed}; its own is {own}"
        )
    if hasattr(network, "set_input_size"):
        network.set_input_size(img_size=(size, size))
    return size


def _save_memory(network: Any, name: str) -> None:
    try:
        network.set_grad_checkpointing(True)
    except (AssertionError, AttributeError) as error:
        raise CaptioningError(f"{name} has no checkpointing in timm: leave backbone.checkpointing=false") from error
