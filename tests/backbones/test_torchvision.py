import copy
import pickle
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from captioning.backbones.torchvision import TorchvisionBackbone
from captioning.errors import CaptioningError

NODE = "features.7"
CLOSE = {"atol": 1e-4, "rtol": 1e-4}  # float32 sums in another order, over features of a few units


def pictures(size: int, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def squeezenet(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network: nn.Module = torchvision.models.squeezenet1_1(weights=None)
    return network


def saved(folder: Path, state: Any) -> str:
    torch.save(state, folder / "weights.pt")
    return str(folder / "weights.pt")


def by_hand(layers: list[nn.Module], images: Tensor) -> Tensor:
    """What the full network's own layers make of images that torchvision normalised: `[B, D, h, w]`."""
    normalise = torchvision.transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    with torch.no_grad():
        return nn.Sequential(*layers).eval()(normalise(images / 255))


def children(network: nn.Module, count: int) -> list[nn.Module]:
    return list(network.features.children())[:count]


def resnet_layers(network: nn.Module) -> list[nn.Module]:
    return [*list(network.children())[:4], network.layer1, network.layer2]


@pytest.mark.parametrize(
    ("name", "node", "layers", "dim", "size"),
    [
        ("squeezenet1_1", "features.12", lambda net: children(net, 13), 512, 53),
        ("squeezenet1_1", "features.0", lambda net: children(net, 1), 64, 17),
        ("squeezenet1_1", "features.3.squeeze", lambda net: [*children(net, 3), net.features[3].squeeze], 16, 33),
        ("resnet18", "layer2", resnet_layers, 128, 37),
    ],
)
def test_equals_the_full_networks_own_layers(
    tmp_path: Path, name: str, node: str, layers: Callable[[nn.Module], list[nn.Module]], dim: int, size: int
) -> None:
    torch.manual_seed(1)
    full = torchvision.models.get_model(name, weights=None)
    backbone = TorchvisionBackbone(name, node, saved(tmp_path, full.state_dict()), size)
    expected = by_hand(layers(full), pictures(size))
    height, width = backbone.grid
    assert (backbone.dim, *expected.shape) == (dim, 2, dim, height, width)
    features = backbone(pictures(size))
    assert features.shape == (2, height * width, dim)
    for row in range(height):
        for column in range(width):
            torch.testing.assert_close(features[:, width * row + column], expected[:, :, row, column], **CLOSE)


def test_vgg_11_up_to_a_convolution_that_an_in_place_relu_follows() -> None:
    backbone = TorchvisionBackbone("vgg11", "features.18", None, 32)
    weights = {key.partition("features.")[2]: value for key, value in backbone.network.state_dict().items()}
    maps = backbone.transform.normalise(pictures(32))
    index = 0
    # Column A of the paper's Table 1, P where it pools, up to the last convolution but without its ReLU.
    for width in (64, "P", 128, "P", 256, 256, "P", 512, 512, "P", 512, 512):
        if width == "P":
            maps = F.max_pool2d(maps, 2)
            index += 1
        else:
            maps = F.conv2d(
                maps.relu() if index else maps, weights[f"{index}.weight"], weights[f"{index}.bias"], padding=1
            )
            index += 2
    features = backbone(pictures(32))
    assert features.min() < 0
    torch.testing.assert_close(features, maps.flatten(2).mT, **CLOSE)


@pytest.mark.parametrize(("size", "grid"), [(240, (14, 14)), (17, (1, 1))])
def test_grid(size: int, grid: tuple[int, int]) -> None:
    assert TorchvisionBackbone("squeezenet1_1", "features.12", None, size).grid == grid


def test_nothing_behind_the_node_is_kept() -> None:
    backbone = TorchvisionBackbone("squeezenet1_1", NODE, None, 33)
    names = [name for name, _ in backbone.network.named_parameters()]
    assert names
    assert not any("classifier" in name or "features.8" in name for name in names)


def test_frozen_stays_in_evaluation_mode_and_takes_no_gradient() -> None:
    parent = nn.ModuleList([TorchvisionBackbone("resnet18", "layer1", None, 33)]).train()
    (backbone,) = parent
    assert not any(module.training for module in backbone.network.modules())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    before = backbone.digest
    assert not backbone(pictures(33)).requires_grad
    assert backbone.digest == before


def test_trainable_takes_gradients_and_keeps_batch_statistics() -> None:
    backbone = TorchvisionBackbone("resnet18", "layer1", None, 33, trainable=True).train()
    statistics = {name: buffer.clone() for name, buffer in backbone.network.named_buffers()}
    backbone(pictures(33)).square().mean().backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())
    assert all(torch.equal(buffer, statistics[name]) for name, buffer in backbone.network.named_buffers())


def test_random_weights_follow_the_seed_only_when_trained() -> None:
    def digest(seed: int, trainable: bool) -> str:
        torch.manual_seed(seed)
        return TorchvisionBackbone("squeezenet1_1", NODE, None, 33, trainable).digest

    assert digest(1, False) == digest(2, False)
    assert digest(1, True) != digest(2, True)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    TorchvisionBackbone("squeezenet1_1", NODE, None, 33)
    assert torch.equal(torch.rand(2), expected)


def test_digest_tells_everything_apart(tmp_path: Path) -> None:
    state = squeezenet(5).state_dict()
    weights = saved(tmp_path, state)
    base = TorchvisionBackbone("squeezenet1_1", NODE, weights, 33).digest
    assert TorchvisionBackbone("squeezenet1_1", NODE, weights, 33).digest == base
    state["classifier.1.bias"] += 1
    assert TorchvisionBackbone("squeezenet1_1", NODE, saved(tmp_path, state), 33).digest == base
    others = [
        TorchvisionBackbone("squeezenet1_1", "features.6", weights, 33),
        TorchvisionBackbone("squeezenet1_1", NODE, weights, 37),
        TorchvisionBackbone("squeezenet1_1", NODE, None, 33),
    ]
    state["features.0.bias"][3] += 1e-3
    others.append(TorchvisionBackbone("squeezenet1_1", NODE, saved(tmp_path, state), 33))
    assert len({base, *(other.digest for other in others)}) == 5


def test_pickles_and_copies() -> None:
    backbone = TorchvisionBackbone("squeezenet1_1", NODE, None, 33)
    for twin in (pickle.loads(pickle.dumps(backbone)), copy.deepcopy(backbone)):
        assert twin.digest == backbone.digest
        assert torch.equal(twin(pictures(33)), backbone(pictures(33)))


def test_weights_without_classifier(tmp_path: Path) -> None:
    state = {key: value for key, value in squeezenet(5).state_dict().items() if key.startswith("features")}
    backbone = TorchvisionBackbone("squeezenet1_1", NODE, saved(tmp_path, state), 33)
    expected = by_hand(children(squeezenet(5), 8), pictures(33))
    torch.testing.assert_close(backbone(pictures(33)), expected.flatten(2).mT, **CLOSE)


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def test_pickled_code_is_refused_unexecuted(tmp_path: Path) -> None:
    weights = saved(tmp_path, {"features.0.weight": Payload(tmp_path / "executed")})
    with pytest.raises(CaptioningError, match=r"backbone\.weights="):
        TorchvisionBackbone("squeezenet1_1", NODE, weights, 33)
    assert not (tmp_path / "executed").exists()


def test_files_of_other_content(tmp_path: Path) -> None:
    state = squeezenet().state_dict()
    missing = {key: value for key, value in state.items() if key != "features.3.squeeze.bias"}
    deeper = state | {"features.99.weight": torch.zeros(1)}
    for content, name, message in (
        (missing, "squeezenet1_1", "does not fit squeezenet1_1: .*features.3.squeeze.bias"),
        (state, "squeezenet1_0", "does not fit squeezenet1_0"),
        (deeper, "squeezenet1_1", "does not fit squeezenet1_1: .*features.99.weight"),
        ({"state_dict": {}, "epoch": 3}, "squeezenet1_1", "cannot read"),
        ([1, 2], "squeezenet1_1", "cannot read"),
    ):
        with pytest.raises(CaptioningError, match=message):
            TorchvisionBackbone(name, NODE, saved(tmp_path, content), 33)
    weights = Path(saved(tmp_path, state))
    weights.write_bytes(weights.read_bytes()[:1000])
    for path in (weights, tmp_path / "absent.pt"):
        with pytest.raises(CaptioningError, match=path.name):
            TorchvisionBackbone("squeezenet1_1", NODE, str(path), 33)


def test_failed_download_says_where_the_file_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", unreachable)
    place = tmp_path / "hub" / "checkpoints" / "squeezenet1_1-b8a52dc0.pth"
    with pytest.raises(CaptioningError, match="no route") as caught:
        TorchvisionBackbone("squeezenet1_1", NODE, "DEFAULT", 33)
    assert f"save it as {place}, or anywhere and set backbone.weights=FILE" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "squeezenet1"}, "backbone.name=squeezenet1 .*squeezenet1_1"),
        ({"node": "features.13"}, r"backbone.node=features.13 .*features\.1"),
        ({"node": "flatten"}, r"gives \(1, 1000\), not a feature map"),
        ({"size": 5}, "cannot take images of backbone.size=5"),
    ],
)
def test_impossible_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CaptioningError, match=message):
        TorchvisionBackbone(**{"name": "squeezenet1_1", "node": "features.12", "weights": None, "size": 33, **settings})
