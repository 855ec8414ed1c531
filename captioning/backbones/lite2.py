"""EfficientNet-Lite2 without timm, whose import takes seconds.

Tan and Le 2019, "EfficientNet"; the Lite variant (https://github.com/tensorflow/tpu, folder
`models/official/efficientnet/lite`) has ReLU6 and no attention over channels. Names of parts and
parameters, and what `TimmBackbone` calls, are those of timm's `tf_efficientnet_lite2`; with the
same weights its outputs are equal to the bit.

B images, C channels, H rows and W columns.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

NAMES = ("tf_efficientnet_lite2", "tf_efficientnet_lite2.in1k")
PLAN = ((3, 3, 2, 24), (3, 5, 2, 48), (4, 3, 2, 88), (4, 5, 1, 120), (5, 5, 2, 208), (1, 3, 1, 352))
"""Blocks, kernel size, stride of the first block and channels of `blocks.1` to `blocks.6`."""
EXPANSION = 6
ENDS = (0, 1, 2, 4, 6)
"""Stages that are nodes: the last of each resolution."""
HALF = (0.5, 0.5, 0.5)
IMAGES = {"input_size": (3, 260, 260), "mean": HALF, "std": HALF, "interpolation": "bicubic"}
OF_CAPTIONERS = "backbone.network.extractor."


def checkpoint_filter_fn(state: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The weights of this network, of a captioner that was trained here with it as its backbone."""
    own = {name.removeprefix(OF_CAPTIONERS): state[name] for name in state if OF_CAPTIONERS in name}
    return own or state


class Lite2(nn.Module):
    """The full network, which `prune_intermediate_layers` cuts off."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU6(inplace=True)
        self.conv_stem, self.bn1 = SameConv(3, 32, 3, 2), _norm(32)
        stages, width = [nn.Sequential(Separable(32, 16))], 16
        for count, kernel, stride, channels in PLAN:
            first = InvertedResidual(width, channels, kernel, stride)
            more = [InvertedResidual(channels, channels, kernel) for _ in range(count - 1)]
            stages.append(nn.Sequential(first, *more))
            width = channels
        self.blocks = nn.Sequential(*stages)
        self.conv_head, self.bn2 = SameConv(width, 1280, 1), _norm(1280)
        self.classifier = nn.Linear(1280, 1000)
        self.feature_info = [{"module": f"blocks.{stage}"} for stage in ENDS]
        self.pretrained_cfg = IMAGES

    def prune_intermediate_layers(self, indices: Sequence[int], **_: Any) -> Sequence[int]:
        """Remove what comes after a node."""
        del self.blocks[ENDS[indices[0]] + 1 :], self.conv_head, self.bn2, self.classifier
        return indices

    def forward_intermediates(self, images: Tensor, **_: Any) -> list[Tensor]:
        """The map of the last stage that is left, `[B, C, H, W]`."""
        return [self.blocks(self.act(self.bn1(self.conv_stem(images))))]


class SameConv(nn.Conv2d):
    """A convolution whose output has ceil(H / stride) rows, padded as TensorFlow does: an odd row
    or column of padding is below or on the right.
    """

    def __init__(self, before: int, after: int, kernel: int, stride: int = 1, groups: int = 1):
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(before, after, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride > 1:
            rows, columns = (
                max((-(-side // stride) - 1) * stride + kernel - side, 0)
                for side in images.shape[-2:]
            )
            edges = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
            images = functional.pad(images, edges)
        return super().forward(images)


class Separable(nn.Module):
    """The first block: a convolution of each channel by itself, and a 1x1 convolution."""

    def __init__(self, before: int, after: int):
        super().__init__()
        self.act = nn.ReLU6(inplace=True)
        self.conv_dw, self.bn1 = SameConv(before, before, 3, groups=before), _norm(before)
        self.conv_pw, self.bn2 = SameConv(before, after, 1), _norm(after)

    def forward(self, images: Tensor) -> Tensor:
        return self.bn2(self.conv_pw(self.act(self.bn1(self.conv_dw(images)))))


class InvertedResidual(nn.Module):
    """x + W_2 dw(W_1 x), with ReLU6 after W_1 and dw; without x where the shape changes."""

    def __init__(self, before: int, after: int, kernel: int, stride: int = 1):
        super().__init__()
        self.act = nn.ReLU6(inplace=True)
        inner = EXPANSION * before
        self.conv_pw, self.bn1 = SameConv(before, inner, 1), _norm(inner)
        self.conv_dw, self.bn2 = SameConv(inner, inner, kernel, stride, inner), _norm(inner)
        self.conv_pwl, self.bn3 = SameConv(inner, after, 1), _norm(after)
        self.adds = stride == 1 and before == after

    def forward(self, images: Tensor) -> Tensor:
        wide = self.act(self.bn1(self.conv_pw(images)))
        wide = self.act(self.bn2(self.conv_dw(wide)))
        output = self.bn3(self.conv_pwl(wide))
        return output + images if self.adds else output


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)
