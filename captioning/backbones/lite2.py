"""EfficientNet-Lite2 without timm, whose import takes seconds.

Tan and Le 2019, "EfficientNet"; the Lite variant (https://github.com/tensorflow/tpu, folder
`models/official/efficientnet/lite`) has ReLU6 and no attention over channels. Names of layers, and
what `TimmBackbone` calls, are those of timm's `tf_efficientnet_lite2`; with the same weights its
outputs are equal to the bit.

B images, C channels, H rows and W columns.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

NAMES = ("tf_efficientnet_lite2", "tf_efficientnet_lite2.in1k")
PLAN = ((3, 3, 2, 24), (3, 5, 2, 48), (4, 3, 2, 88), (4, 5, 1, 120), (5, 5, 2, 208), (1, 3, 1, 352))
"""Blocks, kernel size, stride of the first block and channels of `blocks.1` to `blocks.6`."""
EXPANSION = 6
ENDS = (0, 1, 2, 4, 6)
"""Stages that are nodes: the last of each resolution."""
OF_CAPTIONERS = "backbone.network.extractor."


def checkpoint_filter_fn(state: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The weights of a network, also of a captioner that was trained here with it as its backbone.

    Those after its node are left out.
    """
    plain = {name.removeprefix(OF_CAPTIONERS): tensor for name, tensor in state.items()}
    return {name: plain[name] for name in network.state_dict().keys() & plain.keys()}


class Lite2(nn.Sequential):
    """All stages, which `prune_intermediate_layers` cuts off after a node."""

    blocks: nn.Sequential
    feature_info = tuple({"module": f"blocks.{stage}"} for stage in ENDS)
    pretrained_cfg: ClassVar = {
        "input_size": (3, 260, 260),
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "interpolation": "bicubic",
    }

    def __init__(self) -> None:
        first = _layers(conv_dw=Convolution(32, 32, 3, groups=32), conv_pw=Convolution(32, 16))
        stages, width = [nn.Sequential(nn.Sequential(first))], 16
        for count, kernel, stride, channels in PLAN:
            blocks = [InvertedResidual(width, channels, kernel, stride)]
            blocks += [InvertedResidual(channels, channels, kernel) for _ in range(count - 1)]
            stages.append(nn.Sequential(*blocks))
            width = channels
        stem = _layers(conv_stem=Convolution(3, 32, 3, 2))
        stem |= {"act": nn.ReLU6(inplace=True), "blocks": nn.Sequential(*stages)}
        super().__init__(stem)

    def prune_intermediate_layers(self, indices: Sequence[int], **_: Any) -> Sequence[int]:
        """Remove the stages after a node."""
        del self.blocks[ENDS[indices[0]] + 1 :]
        return indices

    def forward_intermediates(self, images: Tensor, **_: Any) -> list[Tensor]:
        """The map of the last stage, `[B, C, H, W]`."""
        return [self(images)]


class InvertedResidual(nn.Sequential):
    """x + W_2 dw(W_1 x), with ReLU6 after W_1 and dw; without x where the shape changes."""

    def __init__(self, before: int, after: int, kernel: int, stride: int = 1):
        inner = EXPANSION * before
        layers = _layers(
            conv_pw=Convolution(before, inner),
            conv_dw=Convolution(inner, inner, kernel, stride, inner),
            conv_pwl=Convolution(inner, after),
        )
        super().__init__(layers)
        self.adds = stride == 1 and before == after

    def forward(self, images: Tensor) -> Tensor:
        output = super().forward(images)
        return output + images if self.adds else output


class Convolution(nn.Conv2d):
    """A map of H rows becomes one of ceil(H / stride), padded as TensorFlow does: with stride 2 and
    an even H there is a row less above than below, and likewise for columns.
    """

    def __init__(self, before: int, after: int, kernel: int = 1, stride: int = 1, groups: int = 1):
        self.edge = kernel // 2
        padding = 0 if stride == 2 else self.edge
        super().__init__(before, after, kernel, stride, padding, groups=groups, bias=False)
        outputs = kernel**2 * after // groups  # (D) timm's: or random maps fade from stage to stage
        nn.init.normal_(self.weight, std=math.sqrt(2 / outputs))

    def forward(self, images: Tensor) -> Tensor:
        if self.stride == (2, 2):
            above, left = (self.edge - 1 + side % 2 for side in images.shape[-2:])
            images = functional.pad(images, (left, self.edge, above, self.edge))
        return super().forward(images)


def _layers(**convolutions: Convolution) -> "OrderedDict[str, nn.Module]":
    """Convolutions by name, each normalised, with ReLU6 between them."""
    layers = OrderedDict[str, nn.Module]()
    for number, (name, convolution) in enumerate(convolutions.items(), 1):
        layers[name] = convolution
        layers[f"bn{number}"] = nn.BatchNorm2d(convolution.out_channels, eps=1e-3)
        layers[f"act{number}"] = nn.ReLU6(inplace=True)
    layers.popitem()
    return layers
