"""Weights from a file into a network of a library: read without running code, checked by name and shape."""

import pickle
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from captioning.errors import CaptioningError, quoted


@contextmanager
def fixed_draws(enabled: bool) -> Iterator[None]:
    """Whatever is drawn at random inside is the same each time, and costs the run no draw of its own."""
    with torch.random.fork_rng(devices=[], enabled=enabled):
        if enabled:
            torch.manual_seed(0)
        yield


def fill(
    network: nn.Module,
    known: Collection[str],
    path: Path,
    name: str,
    likely: Callable[[Mapping[str, Tensor]], str | None],
) -> None:
    """Fill a network from a file, which must have all that the network has, in any precision.

    Args:
        network: up to its node.
        known: the keys of the whole network, which the file may have beyond the node.
        path: a state dict of `torch.save`, or `*.safetensors`.
        name: of the network.
        likely: names the network that a file of another one may be of.

    Raises:
        CaptioningError: the file cannot be read, is refused, or is of another network.
    """
    state = _read(path)
    own = network.state_dict()
    # Files from before batches were counted lack the counter; evaluation never reads it.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    shapes = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(tensor.shape)}"
        for key, tensor in own.items()
        if key in state and state[key].shape != tensor.shape
    ]
    foreign = [quoted(key) for key in state if key not in known]
    problems = [
        f"{len(found)} {kind}: {', '.join(found[:3])}{', ...' if len(found) > 3 else ''}"
        for kind, found in (("missing", missing), ("of another shape", shapes), (f"unknown to {name}", foreign))
        if found
    ]
    if problems:
        other = likely(state)
        hint = f"; the file looks like {other}" if other and other != name else ""
        raise CaptioningError(f"backbone.weights={path} does not fit {name}: {'; '.join(problems)}{hint}")
    with torch.no_grad():
        for key, tensor in own.items():
            if key in state:
                tensor.copy_(state[key])


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError as error:
        raise CaptioningError(
            f"backbone.weights={path} does not exist; allowed: DEFAULT, null or the file of a state dict "
            "(.safetensors, or of torch.save)"
        ) from error
    except pickle.UnpicklingError as error:
        raise CaptioningError(
            f"backbone.weights={path} is refused: beside tensors it holds Python objects, which can run code when "
            "loaded, or it is no file of torch.save. Save the plain weights: torch.save(model.state_dict(), FILE)"
        ) from error
    except Exception as error:  # a damaged file can fail anywhere in the readers
        raise CaptioningError(f"cannot read backbone.weights={path}: {type(error).__name__}: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        found = f"a dict of {', '.join(map(str, list(state)[:5]))}" if isinstance(state, dict) else type(state).__name__
        raise CaptioningError(f"backbone.weights={path} holds {found}, not a state dict (parameter name to tensor)")
    return state


def likely_network(
    state: Mapping[str, Tensor], candidates: Iterable[str], build: Callable[[str], nn.Module]
) -> str | None:
    """The candidate that shares most names and shapes of parameters with a file, if more than half of them."""
    found = {(key, tensor.shape) for key, tensor in state.items()}
    overlap = {}
    for candidate in candidates:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                parameters = build(candidate).state_dict()
            except (NotImplementedError, RuntimeError):  # it reads numbers while it is built, which meta tensors lack
                continue
        own = {(key, tensor.shape) for key, tensor in parameters.items()}
        overlap[candidate] = len(own & found) / len(own | found)
    best = max(overlap, key=lambda candidate: overlap[candidate], default=None)
    return best if best is not None and overlap[best] > 0.5 else None


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
