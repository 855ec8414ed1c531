"""What a network makes of an image of a given size, found out by asking it."""

import torch
from torch import Tensor, nn

from captioning.errors import CaptioningError, quoted


def feature_map(network: nn.Module, name: str, node: str, size: int, hint: str = "") -> tuple[int, int, int]:
    """D, h and w of the output at `node` of the network `name` for images of `size`.

    Raises:
        CaptioningError: the network does not take such images, for which `hint` says what it takes, or there is no
            feature map at the node.
    """
    try:
        with torch.no_grad():
            output = network(torch.zeros(1, 3, size, size))
    except Exception as error:  # libraries refuse a size with whatever fails first
        raise CaptioningError(f"{name} cannot take images of backbone.size={size}: {quoted(error)}{hint}") from error
    if not isinstance(output, Tensor) or output.ndim != 4:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise CaptioningError(f"backbone.node={node} of {name} gives {shape}, not a feature map [B, D, h, w]")
    _, dim, height, width = output.shape
    return dim, height, width
