"""Where the stages of a ResNet have their stride, the one thing that a file of its weights does not tell.

He et al. 2015 and their Caffe models, and Keras' after them, halve the resolution in the first 1x1 convolution of a
stage; torchvision and timm in the 3x3 one ("ResNet v1.5"). Names and shapes of the weights are the same, and either
runs with the other's, only worse.
"""

from typing import Any

from torch import nn

from captioning.errors import CaptioningError, quoted


def place_strides(network: nn.Module, name: str, in_1x1: bool | None, weights: str | None, known: bool = False) -> None:
    """Moves the strides of a network with bottleneck blocks where its weights were trained with them.

    Args:
        network: of torchvision or timm, whole.
        name: of the network.
        in_1x1: true, false, or None for the library's own weights and random ones.
        weights: `DEFAULT`, None or a file.
        known: whether the file is one that the library has published.

    Raises:
        CaptioningError: a file of such a network comes without a word on its strides, or a wrong word.
    """
    bottlenecks: list[Any] = [block for block in network.modules() if type(block).__name__ == "Bottleneck"]
    strided = [block for block in bottlenecks if getattr(block.conv2, "stride", None) == (2, 2)]
    own = weights == "DEFAULT" or known
    if in_1x1 and (own or not strided):
        reason = "the library's own weights have the stride in the 3x3" if own else f"{name} has no bottleneck blocks"
        raise CaptioningError(f"backbone.stride_in_1x1=true is wrong here, {reason}: leave it null")
    if strided and in_1x1 is None and weights is not None and not own:
        raise CaptioningError(
            f"backbone.weights={quoted(weights)} fits {name} in two ways, and nothing in a file tells which is right: "
            "set backbone.stride_in_1x1=true for weights of the original ResNets (Caffe, Keras), where the first 1x1 "
            "convolution of a stage has its stride, and backbone.stride_in_1x1=false for weights trained with "
            "torchvision, timm and most others since, where the 3x3 has it"
        )
    if in_1x1:
        for block in strided:
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
