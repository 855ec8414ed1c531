"""Training the last nodes of a network alone."""

from collections.abc import Callable

import pytest
import torch

from captioning.backbones import Backbone
from captioning.backbones.timm import TimmBackbone
from captioning.backbones.torchvision import TorchvisionBackbone
from captioning.errors import CaptioningError


@pytest.mark.parametrize(
    ("build", "node", "learning"),
    [
        (lambda node: TorchvisionBackbone("resnet18", "layer3", None, 33, node), "layer2", {"layer2", "layer3"}),
        (lambda node: TorchvisionBackbone("squeezenet1_1", "features.4", None, 33, node), "features.4", {"features.4"}),
        (lambda node: TimmBackbone("test_resnet", None, None, 33, node), "layer4", {"layer4"}),
        (
            lambda node: TimmBackbone("test_vit", None, "blocks.2", 32, node),
            "blocks.1",
            {"blocks.1", "blocks.2", "norm"},
        ),
    ],
)
def test_the_last_nodes_alone_learn(build: Callable[[str], Backbone], node: str, learning: set[str]) -> None:
    backbone = build(node).train()
    assert backbone.trainable
    images = torch.randint(0, 256, (2, 3, backbone.size, backbone.size), dtype=torch.uint8)
    backbone(images).square().mean().backward()
    found = {name.split("extractor.")[1] for name, p in backbone.named_parameters() if p.grad is not None}
    assert {part for part in learning if any(f"{name}.".startswith(f"{part}.") for name in found)} == learning
    assert all(any(f"{name}.".startswith(f"{part}.") for part in learning) for name in found)


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(CaptioningError, match=r"backbone.trainable=block.4 .*true, false or the node.* such as blocks"):
        TimmBackbone("test_vit", None, None, 64, "block.4")
