"""Weights of libraries' networks: from a file, without running code; and where the stages of a ResNet have strides."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from captioning.errors import CaptioningError, quoted


@contextmanager
def fixed_draws(enabled: bool) -> Iterator[None]:
    """Fork the random number generator with a fixed seed; the caller's own draws stay as they were."""
    with torch.random.fork_rng(devices=[], enabled=enabled):
        if enabled:
            torch.manual_seed(0)
        yield


def fill(network: nn.Module, known: Collection[str], path: Path, name: str) -> None:
    """Fill a network from a file that has all of its weights, in any precision.

    Args:
        network: up to its node.
        known: keys of the full network, which the file may have beyond the node.
        path: a state dict of `torch.save`, or `*.safetensors`.
        name: of the network.
    """
    state = _read(path)
    own = network.state_dict()
    # Files from before batches were counted lack the counter; evaluation never reads it.
    counters = {key: tensor for key, tensor in own.items() if key.endswith("num_batches_tracked")}
    try:
        if foreign := [quoted(key) for key in state if key not in known]:
            raise RuntimeError(f"{len(foreign)} keys are unknown to it, such as {foreign[0]}")
        network.load_state_dict(counters | {key: tensor for key, tensor in state.items() if key in own})
    except RuntimeError as error:
        raise CaptioningError(f"backbone.weights={path} does not fit {name}: {quoted(error)}") from error


def _read(path: Path) -> dict[str, Tensor]:
    try:
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
        if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
            raise TypeError("it is not a dict of parameter names to tensors")
    except Exception as error:  # a damaged file can fail anywhere in the readers
        raise CaptioningError(
            f"cannot read backbone.weights={path}: {type(error).__name__}: {quoted(error)}. Allowed: DEFAULT, null, or "
            "a file of plain weights, as of torch.save(model.state_dict(), FILE) or .safetensors"
        ) from error
    return state


def place_strides(network: nn.Module, name: str, in_1x1: bool | None, weights: str | None, known: bool = False) -> None:
    """Move the strides of a network with bottleneck blocks to where its weights were trained with them.

    He et al. 2015 and their Caffe models, and Keras after them, halve the resolution in the first 1x1 convolution of a
    stage; torchvision and timm in the 3x3 one ("ResNet v1.5"). Names and shapes of the weights are the same, and either
    runs with the other's, only worse: the one thing that a file does not tell.

    Args:
        network: of torchvision or timm, whole.
        name: of the network.
        in_1x1: true, false, or None for the library's own weights and random ones.
        weights: `DEFAULT`, None or a file.
        known: whether the file is one that the library has published.
    """
    bottlenecks: list[Any] = [block for block in network.modules() if type(block).__name__ == "Bottleneck"]
    strided = [block for block in bottlenecks if getattr(block.conv2, "stride", None) == (2, 2)]
    own = weights == "DEFAULT" or known
    if in_1x1 and (own or not strided):
        reason = "the library's own weights have the stride in the 3x3" if own else f"{name} has no bottleneck blocks"
        raise CaptioningError(f"backbone.stride_in_1x1=true is wrong here, {reason}: leave it null")
    if strided and in_1x1 is None and weights is not None and not own:
        raise CaptioningError(
            f"backbone.weights={quoted(weights)} fits {name} in two ways, and the file does not tell which is right: "
            "set backbone.stride_in_1x1=true for weights of the original ResNets (Caffe, Keras), and "
            "backbone.stride_in_1x1=false for those trained with torchvision, timm and most others since"
        )
    if in_1x1:
        for block in strided:
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
