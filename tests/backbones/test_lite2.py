"""EfficientNet-Lite2 of our own: equal to timm's to the bit, and of the bundled captioner."""

import subprocess
import sys

import pytest
import timm
import torch
from pictures import random_pixels
from safetensors.torch import load_file, save_file
from torch import nn

import captioning
from captioning.backbones.lite2 import NAMES, Lite2
from captioning.backbones.timm import TimmBackbone
from captioning.pretrained.named import checkpoint_path

NAME = NAMES[0]


@pytest.fixture(scope="module")
def of_timm():
    """With random weights and statistics."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = timm.create_model(NAME)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 2)
                module.bias.data.normal_(std=0.5)
    return network.eval()


def backbone(folder, network, **settings):
    save_file(network.state_dict(), folder / "all.safetensors")
    return TimmBackbone(NAME, str(folder / "all.safetensors"), **settings)


@pytest.mark.parametrize("size", [96, 97, 224, 260, 321])
def test_equals_timms_to_the_bit(of_timm, size, tmp_path):
    ours = backbone(tmp_path, of_timm, size=size)
    images = random_pixels(2, 3, size, size)
    with torch.no_grad():
        maps = of_timm.forward_intermediates(
            ours.transform.normalise(images).to(memory_format=torch.channels_last),
            intermediates_only=True,
        )
    assert torch.equal(ours(images), maps[-1].flatten(2).mT)
    for node, expected in zip(("blocks.1", "blocks.4"), (maps[1], maps[3]), strict=True):
        cut = backbone(tmp_path, of_timm, size=size, node=node)
        assert torch.equal(cut(images), expected.flatten(2).mT)


def test_gradients_are_those_of_timm(of_timm, tmp_path):
    """`checkpointing`, which computes activations twice, is timm's own network."""
    settings = {"size": 65, "trainable": "blocks.5"}
    both = [backbone(tmp_path, of_timm, **settings, checkpointing=twice) for twice in (False, True)]
    gradients = []
    for each in both:
        each.train()(random_pixels(2, 3, 65, 65)).square().mean().backward()
        gradients.append({name: p.grad for name, p in each.named_parameters()})
    ours, others = gradients
    assert isinstance(both[0].network.extractor, Lite2) != isinstance(
        both[1].network.extractor, Lite2
    )
    assert both[0].digest == both[1].digest
    assert ours.keys() == others.keys()
    assert sum(gradient is not None for gradient in ours.values()) > 20
    for name, gradient in ours.items():
        assert (gradient is None) == (others[name] is None)
        assert gradient is None or torch.equal(gradient, others[name])


def test_the_bundled_weights_are_those_of_the_captioner(tmp_path):
    """Which has nothing behind the last node: its features have the digest of the captioner's."""
    bundled = TimmBackbone(NAME, "bundled", size=320)
    captioner = captioning.load("pretrained", "cpu").first.backbone
    assert bundled.digest == captioner.digest
    assert (bundled.grid, bundled.dim, bundled.trainable) == ((10, 10), 352, False)
    state = load_file(checkpoint_path("pretrained"))
    tensor = state["backbone.network.extractor.blocks.6.0.conv_pwl.weight"]
    assert torch.equal(bundled.network.extractor.blocks[6][0].conv_pwl.weight, tensor.float())
    assert TimmBackbone(NAME, None, size=320).digest != bundled.digest
    with pytest.raises(ValueError, match=r"backbone\.name=tf_efficientnet_lite0 .*lite2"):
        TimmBackbone("tf_efficientnet_lite0", "bundled")


def test_neither_timm_nor_torchvision_is_imported():
    """Nor dynamo, which torchvision imports; for the captioner: `tests/test_program.py`."""
    code = """
import sys
from captioning.backbones.timm import TimmBackbone
TimmBackbone("tf_efficientnet_lite2", "bundled")
print({*sys.modules} & {*sys.argv[1:]})
"""
    heavy = ("timm", "torchvision", "torch._dynamo", "sympy", "wandb", "transformers", "lightning")
    said = subprocess.check_output([sys.executable, "-c", code, *heavy], text=True)
    assert said.strip() == "set()"
