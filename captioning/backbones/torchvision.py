"""Backbones from torchvision by name and node: the front part of a classification network.

B images, L context vectors of D features on a grid of (h, w).
"""

import difflib
import pickle
import warnings
from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from captioning.backbones.base import Backbone
from captioning.backbones.dilated import Dilation, dilate
from captioning.backbones.images import ImageTransform
from captioning.borders.bounds import PixelSize, bounded
from captioning.errors import CaptioningError


class TorchvisionBackbone(Backbone):
    """A torchvision classification network up to and including one node; nothing behind the node is computed.

    Nodes with a 14x14 grid: vgg11 `features.19` (D = 512), vgg19 `features.35` (512), resnet101 `layer3` (1024), all at
    size 224, and squeezenet1_1 `features.12` (512) at size 240.
    """

    @bounded
    def __init__(
        self,
        name: str,
        node: str,
        weights: str | None,
        size: PixelSize = 224,
        trainable: bool = False,
        dilation: Dilation = 1,
    ) -> None:
        """Build the network, cut it after `node` and load its weights.

        Args:
            name: the network's name in torchvision.
            node: the node whose output is the feature map, by torchvision's names of graph nodes.
            weights: `DEFAULT` downloads torchvision's best weights for this name; None leaves random ones (while
                frozen, the same in every process and for every seed); otherwise a state dict saved with
                `torch.save`, with or without the layers behind the node.
            size: side of the square images in pixels.
            trainable: whether gradients reach the weights. Batch normalisation keeps its statistics either way.
            dilation: by how much the grid is finer than the network's own, with the same weights; of VGG.

        Raises:
            CaptioningError: unknown name or node, a node that is no feature map, weights that cannot be had or
                belong to another network, a network that cannot be dilated.
        """
        full = _full_network(name, download=weights == "DEFAULT", fixed=weights is not None or not trainable).eval()
        network = _truncated(full, name, node)
        if weights is not None and weights != "DEFAULT":
            _load(network, full, Path(weights).expanduser(), name)
        dilate(network, dilation, name)
        dim, height, width = _feature_map(network, name, node, size)
        settings = f"torchvision {name} {node}" + (f" dilation={dilation}" if dilation > 1 else "")
        super().__init__(settings, network, dim, (height, width), ImageTransform(size), trainable)


class _Truncated(nn.Module):
    """Gives the one output of a feature extractor, which returns a dict."""

    def __init__(self, extractor: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images `[B, 3, H, W]` to the node's output."""
        output: Tensor = self.extractor(images)["node"]
        return output


def _names() -> list[str]:
    return list(torchvision.models.list_models(module=torchvision.models))


def _full_network(name: str, download: bool, fixed: bool) -> nn.Module:
    """The whole network; with `fixed`, whatever is drawn at random is the same each time and costs the run no draw."""
    if name not in _names():
        near = difflib.get_close_matches(name, _names(), 5) or _names()
        raise CaptioningError(f"backbone.name={name} is no torchvision network; near it: {', '.join(near)}")
    with torch.random.fork_rng(devices=[], enabled=fixed), warnings.catch_warnings():
        if fixed:
            torch.manual_seed(0)
        # Two old networks warn that their random initialisation is slow.
        warnings.filterwarnings("ignore", "The default weight initialization", FutureWarning)
        if not download:
            return _module(torchvision.models.get_model(name, weights=None))
        try:
            return _module(torchvision.models.get_model(name, weights="DEFAULT"))
        except (OSError, RuntimeError) as error:  # no network, a full disk; a file whose hash is wrong
            url = str(torchvision.models.get_model_weights(name).DEFAULT.url)
            place = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
            raise CaptioningError(
                f"cannot get torchvision's weights for {name}: {error}. Fetch {url} by other means and save it as "
                f"{place}, or anywhere and set backbone.weights=FILE"
            ) from error


def _module(network: object) -> nn.Module:
    assert isinstance(network, nn.Module)
    return network


def _truncated(full: nn.Module, name: str, node: str) -> nn.Module:
    nodes = get_graph_node_names(full, suppress_diff_warning=True)[1]
    if not any(known == node or known.startswith(f"{node}.") for known in nodes):
        near = difflib.get_close_matches(node, nodes, 5) or nodes[-5:]
        raise CaptioningError(f"backbone.node={node} is not in {name}; near it: {', '.join(near)}")
    return _Truncated(create_feature_extractor(full, {node: "node"}, suppress_diff_warning=True)).eval()


def _feature_map(network: nn.Module, name: str, node: str, size: int) -> tuple[int, int, int]:
    """D, h and w of the node's output at this size."""
    try:
        with torch.no_grad():
            output = network(torch.zeros(1, 3, size, size))
    except (RuntimeError, AssertionError) as error:
        raise CaptioningError(f"{name} cannot take images of backbone.size={size}: {error}") from error
    if not isinstance(output, Tensor) or output.ndim != 4:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise CaptioningError(f"backbone.node={node} of {name} gives {shape}, not a feature map [B, D, h, w]")
    _, dim, height, width = output.shape
    return dim, height, width


def _load(network: nn.Module, full: nn.Module, path: Path, name: str) -> None:
    """Fill the truncated network from a file, of which it must need all that it lacks."""
    state = _read_state(path)
    own = {key.removeprefix("extractor."): tensor for key, tensor in network.state_dict().items()}
    known = full.state_dict().keys()
    # Files from before torchvision counted batches lack the counter; evaluation never reads it.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    shapes = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(tensor.shape)}"
        for key, tensor in own.items()
        if key in state and state[key].shape != tensor.shape
    ]
    foreign = [key for key in state if key not in known]
    problems = [
        f"{len(found)} {kind}: {', '.join(found[:3])}{', ...' if len(found) > 3 else ''}"
        for kind, found in (("missing", missing), ("of another shape", shapes), (f"unknown to {name}", foreign))
        if found
    ]
    if problems:
        other = _likely_network(state, name)
        hint = f"; the file looks like {other}" if other and other != name else ""
        raise CaptioningError(f"backbone.weights={path} does not fit {name}: {'; '.join(problems)}{hint}")
    with torch.no_grad():
        for key, tensor in own.items():
            if key in state:
                tensor.copy_(state[key])


def _read_state(path: Path) -> dict[str, Tensor]:
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError as error:
        raise CaptioningError(
            f"backbone.weights={path} does not exist; allowed: DEFAULT, null or the file of a state dict"
        ) from error
    except pickle.UnpicklingError as error:
        raise CaptioningError(
            f"backbone.weights={path} is refused: beside tensors it holds Python objects, which can run code when "
            "loaded, or it is no file of torch.save. Save the plain weights: torch.save(model.state_dict(), FILE)"
        ) from error
    except Exception as error:  # a damaged file can fail anywhere in torch's readers
        raise CaptioningError(f"cannot read backbone.weights={path}: {type(error).__name__}: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        found = f"a dict of {', '.join(map(str, list(state)[:5]))}" if isinstance(state, dict) else type(state).__name__
        raise CaptioningError(f"backbone.weights={path} holds {found}, not a state dict (parameter name to tensor)")
    return state


def _likely_network(state: dict[str, Tensor], name: str) -> str | None:
    """The torchvision network whose parameters share most names and shapes with the file's, those named alike first."""
    found = {(key, tensor.shape) for key, tensor in state.items()}
    alike = [candidate for candidate in _names() if candidate[:3] == name[:3]]
    for candidates in (alike, [candidate for candidate in _names() if candidate not in alike]):
        overlap = {}
        for candidate in candidates:
            with torch.device("meta"), warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                try:
                    parameters = torchvision.models.get_model(candidate, weights=None).state_dict()
                except NotImplementedError:  # RegNet reads numbers while it is built, which meta tensors have not
                    continue
            own = {(key, tensor.shape) for key, tensor in parameters.items()}
            overlap[candidate] = len(own & found) / len(own | found)
        best = max(overlap, key=lambda candidate: overlap[candidate], default=None)
        if best is not None and overlap[best] > 0.5:
            return best
    return None
