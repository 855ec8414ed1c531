import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.transforms import Normalize

from captioning.backbones.timm import TimmBackbone
from captioning.errors import CaptioningError

CLOSE = {"atol": 1e-4, "rtol": 1e-4}  # float32 sums in another order


def pictures(size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8, generator=generator)


def network(name: str, **settings: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        full = timm.create_model(name, **settings).eval()
        for module in full.modules():  # with random statistics, a difference in one normalisation shows
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 2)
    return full


def saved(folder: Path, full: nn.Module) -> str:
    save_file(full.state_dict(), folder / "weights.safetensors")
    return str(folder / "weights.safetensors")


def small(weights: str | None = None, name: str = "test_vit", **settings: Any) -> TimmBackbone:
    return TimmBackbone(name, weights, **({"size": 64} | settings))


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("name", "statistics", "vectors", "size"),
    [
        ("test_byobnet", IMAGENET, lambda maps: maps.flatten(2).mT, 75),  # [B, D, h, w]
        ("test_mambaout", IMAGENET, lambda maps: maps.flatten(1, 2), 96),  # [B, h, w, D]
        ("test_vit", HALVES, lambda tokens: tokens[:, 1:], 160),  # the first is for the class
        ("vit_pwee_patch16_reg1_gap_256", HALVES, lambda tokens: tokens[:, 1:], 256),  # a register
    ],
)
def test_equals_the_full_network(
    tmp_path: Path, name: str, statistics: Any, vectors: Callable[[Tensor], Tensor], size: int
) -> None:
    full = network(name)
    with torch.no_grad():
        expected = vectors(full.forward_features(Normalize(*statistics)(pictures(size) / 255)))
    backbone = TimmBackbone(name, saved(tmp_path, full), size=size)
    assert expected.shape == (2, backbone.grid[0] * backbone.grid[1], backbone.dim)
    torch.testing.assert_close(backbone(pictures(size)), expected, **CLOSE)


def test_a_node_before_the_last(tmp_path: Path) -> None:
    full = network("test_efficientnet")
    backbone = small(saved(tmp_path, full), "test_efficientnet", node="blocks.2")
    layers = nn.Sequential(full.conv_stem, full.bn1, *full.blocks[:3])
    with torch.no_grad():
        expected = layers(backbone.transform.normalise(pictures(64)))
    assert (backbone.dim, *backbone.grid) == expected.shape[1:]
    torch.testing.assert_close(backbone(pictures(64)), expected.flatten(2).mT, **CLOSE)
    assert not any("blocks.3" in name or "conv_head" in name for name in backbone.state_dict())


def test_positions_are_resized_as_timm_resizes_them(tmp_path: Path) -> None:
    full = network("test_vit", dynamic_img_size=True)
    backbone = small(saved(tmp_path, full), size=96)
    with torch.no_grad():
        expected = full.forward_features(backbone.transform.normalise(pictures(96)))[:, 1:]
    assert backbone.grid == (6, 6)
    torch.testing.assert_close(backbone(pictures(96)), expected, **CLOSE)


def test_size_and_preprocessing_are_the_networks_own() -> None:
    backbone = TimmBackbone("tf_efficientnet_lite2", None)  # its published model card: 260 pixels, x / 127.5 - 1
    assert (backbone.size, backbone.dim, backbone.grid) == (260, 352, (9, 9))
    assert (backbone.transform.mean, backbone.transform.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert backbone.transform.interpolation == "bicubic"
    assert small(None, "test_resnet").transform.interpolation == "bilinear"


def test_digest_tells_everything_apart(tmp_path: Path) -> None:
    weights = saved(tmp_path, network("test_vit"))
    digests = [
        small(weights).digest,
        small(weights, node="blocks.4").digest,
        small(weights, size=80).digest,
        small(None).digest,
        small(None, "test_vit2").digest,
    ]
    assert len(set(digests)) == 5
    assert small(weights, "test_vit.r160_in1k", trainable=True, checkpointing=True).digest == digests[0]


def test_random_weights_follow_the_seed_only_when_trained() -> None:
    digests = []
    for trainable in (False, True):
        for seed in (1, 2):
            torch.manual_seed(seed)
            digests.append(small(trainable=trainable).digest)
            drawn = torch.rand(2)
            torch.manual_seed(seed)
            assert trainable != torch.equal(torch.rand(2), drawn)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_pickles_and_copies() -> None:
    backbone = small()
    for twin in (pickle.loads(pickle.dumps(backbone)), copy.deepcopy(backbone)):
        assert twin.digest == backbone.digest
        assert torch.equal(twin(pictures(64)), backbone(pictures(64)))


def test_every_weight_learns_and_batch_statistics_stay() -> None:
    for name in ("test_efficientnet", "test_vit", "test_mambaout"):
        backbone = small(None, name, trainable=True).train()
        statistics = {name: buffer.clone() for name, buffer in backbone.network.named_buffers()}
        backbone(pictures(64)).square().mean().backward()
        assert all(parameter.grad is not None for parameter in backbone.parameters())
        assert all(torch.equal(buffer, statistics[name]) for name, buffer in backbone.network.named_buffers())


@pytest.mark.parametrize("name", ["test_vit", "test_efficientnet", "test_mambaout"])
def test_checkpointing_holds_less_for_the_same_gradients(name: str) -> None:
    held, gradients = [], []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        backbone = small(None, name, trainable=True, checkpointing=checkpointing)
        parameters = {p.data_ptr() for p in backbone.parameters()}
        seen: dict[int, int] = {}

        def hold(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in parameters:  # noqa: B023 - called within this turn
                seen[tensor.data_ptr()] = tensor.nbytes  # noqa: B023
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
            loss = backbone(pictures(64)).square().mean()
        held.append(sum(seen.values()))
        loss.backward()
        gradients.append([p.grad for p in backbone.parameters()])
    assert held[1] < 0.7 * held[0]
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"name": "efficientnet_light2"}, "backbone.name=efficientnet_light2.* efficientnet_lite2"),
        ({"name": "hf-hub:timm/test_vit"}, "backbone.name=hf-hub:timm/test_vit"),
        ({"node": "layer4"}, "backbone.node=layer4.* blocks.5"),
        ({"size": 100}, "backbone.size=100 .*96, 112"),
        ({"size": 7}, "backbone.size=7 .*16"),
        ({"name": "volo_d1_224"}, "volo_d1_224 .*backbone.size=64.* 224"),
        ({"name": "test_convnext", "size": 3}, "test_convnext .*backbone.size=3"),
        ({"name": "dla46x_c", "checkpointing": True}, "backbone.checkpointing"),
        ({"name": "resnet18", "stride_in_1x1": True}, "backbone.stride_in_1x1"),
    ],
)
def test_impossible_settings(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(CaptioningError, match=named):
        small(None, **settings)
