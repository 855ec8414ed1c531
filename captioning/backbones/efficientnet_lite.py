"""EfficientNet-Lite, identical to timm's in names and bits, without timm's slow import.

Tan and Le, "EfficientNet", ICML 2019, Table 1, without squeeze-and-excitation and with ReLU6, as
TensorFlow's `efficientnet/lite` has it. Neither the channels of the stem nor the depth of the first
and last stage are scaled.
"""

import math
from typing import Any

import yaml
from torch import Tensor, nn

from captioning.files import packaged_text

_SIZES = yaml.safe_load(packaged_text(__package__, "efficientnet_lite.yaml"))
STAGES, VARIANTS = _SIZES["stages"], _SIZES["variants"]


class EfficientNetLite(nn.Module):
    """The stages of one of `VARIANTS` with random weights and the attributes of timm's networks."""

    def __init__(self, name: str):
        super().__init__()
        wider, deeper, side, interpolation = VARIANTS[name]
        self.pretrained_cfg = {"input_size": (3, side, side), "interpolation": interpolation}
        self.pretrained_cfg |= dict.fromkeys(("mean", "std"), (0.5, 0.5, 0.5))
        self.conv_stem, self.bn1, self.act1 = (
            _Conv(3, 32, 3, 2),
            nn.BatchNorm2d(32, eps=1e-3),
            nn.ReLU6(inplace=True),
        )
        self.blocks, channels = nn.Sequential(), 32
        for number, (width, depth, kernel, stride) in enumerate(STAGES):
            width = _divisible(width * wider)
            depth = depth if number in (0, len(STAGES) - 1) else math.ceil(depth * deeper)
            sizes = [(channels, stride), *[(width, 1)] * (depth - 1)]
            stage = (_Block(d, width, kernel, step, 6 if number else 1) for d, step in sizes)
            self.blocks.append(nn.Sequential(*stage))
            channels = width
        # The last stage of each resolution.
        coarser = [stride == 2 for *_, stride in STAGES[1:]] + [True]
        self.feature_info = [{"module": f"blocks.{i}"} for i, last in enumerate(coarser) if last]

    def prune_intermediate_layers(self, indices: list[int], **_: Any) -> list[int]:
        """Remove the stages after one of the nodes in `feature_info`."""
        last = int(self.feature_info[indices[0]]["module"].rpartition(".")[2])
        self.blocks = self.blocks[: last + 1]
        return indices

    def forward_intermediates(self, images: Tensor, **_: Any) -> list[Tensor]:
        """The last node's output `[B, D, h, w]` for normalised images `[B, 3, H, W]`."""
        return [self.blocks(self.act1(self.bn1(self.conv_stem(images))))]


class _Conv(nn.Conv2d):
    """A convolution without bias, with TensorFlow's "SAME" padding.

    An odd pixel is added at the right and bottom.
    """

    def __init__(self, d_in: int, d_out: int, kernel: int, stride: int = 1, groups: int = 1):
        padding = (kernel - 1) // 2 if stride == 1 else 0
        super().__init__(d_in, d_out, kernel, stride, padding, groups=groups, bias=False)

    def reset_parameters(self) -> None:  # as timm draws them
        nn.init.normal_(
            self.weight,
            std=math.sqrt(2 * self.groups / (self.kernel_size[0] ** 2 * self.out_channels)),
        )

    def forward(self, images: Tensor) -> Tensor:
        if self.stride[0] > 1:
            kernel, stride = self.kernel_size[0], self.stride[0]
            height, width = (
                max((-(-side // stride) - 1) * stride + kernel - side, 0)
                for side in images.shape[-2:]
            )
            left, top = width // 2, height // 2
            images = nn.functional.pad(images, (left, width - left, top, height - top))
        return super().forward(images)


class _Block(nn.Sequential):
    """Inverted residual: 1x1 expansion, depthwise convolution, projection.

    The input is added if shapes match.
    """

    def __init__(self, d_in: int, d_out: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        inner = d_in * expansion
        depthwise = _Conv(inner, inner, kernel, stride, groups=inner)
        if expansion > 1:
            convolutions = {"conv_pw": _Conv(d_in, inner, 1), "conv_dw": depthwise}
            convolutions["conv_pwl"] = _Conv(inner, d_out, 1)
        else:
            convolutions = {"conv_dw": depthwise, "conv_pw": _Conv(inner, d_out, 1)}
        for number, (name, convolution) in enumerate(convolutions.items(), 1):
            self.add_module(name, convolution)
            self.add_module(f"bn{number}", nn.BatchNorm2d(convolution.out_channels, eps=1e-3))
            if number < len(convolutions):
                self.add_module(f"act{number}", nn.ReLU6(inplace=True))
        self.skips = stride == 1 and d_in == d_out

    def forward(self, maps: Tensor) -> Tensor:
        output = super().forward(maps)
        return output + maps if self.skips else output


def _divisible(channels: float) -> int:
    """The nearest multiple of 8 that is at least 0.9 times `channels`."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8
