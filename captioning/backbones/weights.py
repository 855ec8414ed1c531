"""Load weights of library networks without running code; place the strides of ResNets."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from captioning.config.types import given_path
from captioning.errors import CaptioningError, naming, quoted
from captioning.files import open_bounded


def check_name(key: str, name: str, allowed: Sequence[str], what: str) -> None:
    """Raise unless a name is among those allowed, suggesting close matches."""
    if name not in allowed:
        near = ", ".join(get_close_matches(name, allowed, 5) or allowed[-5:])
        raise ValueError(f"{key}={quoted(name)} is not {what}; near it: {near}")


@contextmanager
def downloading(name: str, address: str, path: str = "") -> Iterator[None]:
    """Say in errors of a library's download which file it is; it is also found at `path`."""
    try:
        yield
    except Exception as error:  # clients raise many kinds
        use = f"put it at {path}, or set" if path else "set"
        raise CaptioningError(
            f"no weights of {name}: {quoted(error)} (backbone.weights=DEFAULT downloads them). "
            "Without a network, set backbone=bundled, which needs no download, or download "
            f"{address} by other means and {use} backbone.weights=FILE"
        ) from error


@contextmanager
def fixed_draws(enabled: bool) -> Iterator[None]:
    """Fork the RNG with a fixed seed; the global RNG state is unchanged."""
    with torch.random.fork_rng(devices=[], enabled=enabled):
        if enabled:
            torch.manual_seed(0)
        yield


def load_weights(
    network: nn.Module,
    known: Collection[str],
    weights: str | None,
    convert: Callable[[dict[str, Tensor], nn.Module], dict[str, Tensor]] | None = None,
) -> None:
    """Load all weights of a network from a file, in any precision; extra keys must be `known`.

    There is no file if `weights` are the library's own, `DEFAULT`, or None.

    `convert` turns a state of other names into one of the network's.
    """
    if weights is None or weights == "DEFAULT":
        return
    path = given_path(weights)
    with naming(
        f"backbone.weights={quoted(path)} does not fit; it must be DEFAULT, null or a file of this "
        "network's plain weights"
    ):
        with open_bounded(path, math.inf) as file:
            if path.suffix == ".safetensors":
                state = load_file(path)
            else:
                state = torch.load(file, "cpu", weights_only=True)
        if convert:
            state = convert(state, network)
        if foreign := [quoted(key) for key in state if key not in known]:
            raise ValueError(f"{len(foreign)} keys are unknown to it, such as {foreign[0]}")
        own = network.state_dict()
        # Old files lack the counter of batches, which evaluation never reads.
        counters = {key: own[key] for key in own if key.endswith("num_batches_tracked")}
        network.load_state_dict(counters | {key: state[key] for key in state if key in own})


def place_strides(network: nn.Module, name: str, in_1x1: bool | None, weights: str | None) -> None:
    """Place the strides of bottleneck blocks where they were when the weights were trained.

    He et al. 2015 and their Caffe models, and Keras, halve the resolution in the first 1x1
    convolution of a stage; torchvision and timm in the 3x3 one ("ResNet v1.5"). Weights have the
    same names and shapes, and each variant runs with weights of the other, only worse. A file does
    not reveal its variant.
    """
    strided: list[Any] = [
        block
        for block in network.modules()
        if type(block).__name__ == "Bottleneck" and getattr(block.conv2, "stride", None) == (2, 2)
    ]
    own = weights == "DEFAULT"
    if in_1x1 and (own or not strided):
        reason = f"{name} has no bottleneck blocks"
        if own:
            reason = "the library's own weights have the stride in the 3x3"
        raise ValueError(f"backbone.stride_in_1x1=true is wrong here, {reason}: leave it null")
    if strided and in_1x1 is None and weights is not None and not own:
        raise ValueError(
            f"backbone.weights={quoted(weights)} fits {name} in two ways, and the file does not "
            "show which is right: set backbone.stride_in_1x1=true for weights of the original "
            "ResNets (Caffe, Keras), and backbone.stride_in_1x1=false for those trained with "
            "torchvision, timm and most others since"
        )
    for block in strided if in_1x1 else ():
        block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
