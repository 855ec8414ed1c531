"""Finer grids from the weights that a network has (Yu and Koltun 2016; "à trous", Holschneider et al. 1990).

Its last poolings keep their window and lose their stride, and what lies behind reads every second, or fourth, place:
every kernel finds what it was trained on, and the features of the coarse grid are among those of the fine one, at every
second, or fourth, row and column. (D) Without the window, as "drop the pooling" could also be read, they would not be.
"""

from typing import Literal

from torch import nn

from captioning.errors import CaptioningError

Dilation = Literal[1, 2, 4]
"""By how much a grid is finer than the network's own."""


def dilate(network: nn.Module, dilation: Dilation, name: str) -> None:
    """Makes the grid of a chain of layers such as VGG so many times finer, in place.

    Args:
        network: its convolutions and its poolings of 2x2 pixels come in the order in which it applies them.
        dilation: 1 changes nothing.
        name: of the network, for the message.

    Raises:
        CaptioningError: it has other layers with a stride, or too few poolings.
    """
    if dilation == 1:
        return
    layers = [(path, layer) for path, layer in network.named_modules() if hasattr(layer, "stride")]
    dropped = [path for path, layer in layers if isinstance(layer, nn.MaxPool2d)][-dilation.bit_length() + 1 :]
    if len(dropped) < dilation.bit_length() - 1 or not all(_is_vggs(layer) for _, layer in layers):
        raise CaptioningError(
            f"backbone.dilation={dilation} needs a network whose only strides are those of 2x2 poolings, "
            f"{dilation.bit_length() - 1} or more before the node, such as vgg11; {name} is none: leave it at 1"
        )
    spread = 1
    for path, layer in layers[[path for path, _ in layers].index(dropped[0]) :]:
        if isinstance(layer, nn.Conv2d):
            layer.dilation = layer.padding = (spread, spread)
        else:
            # as many places as came in, where the window reaches beyond the edge too
            edge = nn.ConstantPad2d((0, spread, 0, spread), float("-inf"))
            network.set_submodule(path, nn.Sequential(edge, nn.MaxPool2d(2, stride=1, dilation=spread)))
            spread *= 2


def _is_vggs(layer: nn.Module) -> bool:
    """Whether it is a 3x3 convolution without stride or a 2x2 pooling as VGG's are."""
    if isinstance(layer, nn.Conv2d):
        return (layer.kernel_size, layer.stride, layer.padding, layer.groups) == ((3, 3), (1, 1), (1, 1), 1)
    own = isinstance(layer, nn.MaxPool2d) and (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return own == (2, 2, 0, 1) and not layer.ceil_mode
