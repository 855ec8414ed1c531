"""The two kinds of ResNet, whose weights have the same names and shapes."""

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torchvision.models import ResNet50_Weights

from captioning.backbones.timm import TimmBackbone
from captioning.backbones.torchvision import TorchvisionBackbone
from captioning.errors import CaptioningError

IMAGES = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    """A network with random weights and the file of them."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        full = torchvision.models.resnet50(weights=None).eval()
    path = tmp_path_factory.mktemp("weights") / "resnet50.pt"
    torch.save({key: value for key, value in full.state_dict().items() if "layer4" not in key}, path)
    return full, str(path)


def expected(full: Any, in_1x1: bool) -> torch.Tensor:
    """Of `layer3`."""
    layers = copy.deepcopy(torch.nn.Sequential(*list(full.children())[:7]))
    if in_1x1:
        for stage in (5, 6):
            layers[stage][0].conv1.stride, layers[stage][0].conv2.stride = (2, 2), (1, 1)
    normalise = torchvision.transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    with torch.no_grad():
        return layers(normalise(IMAGES / 255)).flatten(2).mT


@pytest.mark.parametrize("in_1x1", [False, True])
def test_both_kinds(resnet: tuple[Any, str], in_1x1: bool) -> None:
    full, weights = resnet
    backbones = [
        TorchvisionBackbone("resnet50", "layer3", weights, 64, stride_in_1x1=in_1x1),
        TimmBackbone("resnet50.tv_in1k", weights, "layer3", 64, stride_in_1x1=in_1x1),
    ]
    for backbone in backbones:
        torch.testing.assert_close(backbone(IMAGES), expected(full, in_1x1), atol=1e-4, rtol=1e-4)
    others = TorchvisionBackbone("resnet50", "layer3", weights, 64, stride_in_1x1=not in_1x1)
    assert others.digest != backbones[0].digest
    assert not torch.allclose(others(IMAGES), backbones[0](IMAGES), atol=1e-2)


def test_a_file_without_a_word_is_refused_with_both(resnet: tuple[Any, str]) -> None:
    with pytest.raises(CaptioningError, match=r"two ways.*stride_in_1x1=true for .*Caffe.*stride_in_1x1=false for"):
        TorchvisionBackbone("resnet50", "layer3", resnet[1], 64)
    with pytest.raises(CaptioningError, match="fits resnet50 in two ways"):
        TimmBackbone("resnet50", resnet[1], size=64)


def test_torchvisions_own_file_is_known_by_its_hash(resnet: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(Path(resnet[1]).read_bytes()).hexdigest()
    published = ResNet50_Weights.IMAGENET1K_V1.value
    monkeypatch.setattr(ResNet50_Weights.IMAGENET1K_V1, "_value_", copy.copy(published))
    object.__setattr__(ResNet50_Weights.IMAGENET1K_V1.value, "url", f"scheme://host/resnet50-{digest[:8]}.pth")
    known = TorchvisionBackbone("resnet50", "layer3", resnet[1], 64)
    assert known.digest == TorchvisionBackbone("resnet50", "layer3", resnet[1], 64, stride_in_1x1=False).digest
    with pytest.raises(CaptioningError, match="stride_in_1x1=true is wrong here, the library's own weights"):
        TorchvisionBackbone("resnet50", "layer3", resnet[1], 64, stride_in_1x1=True)


def test_a_word_where_there_is_nothing_to_say() -> None:
    with pytest.raises(CaptioningError, match="true is wrong here, squeezenet1_1 has no bottleneck blocks"):
        TorchvisionBackbone("squeezenet1_1", "features.7", None, 33, stride_in_1x1=True)
