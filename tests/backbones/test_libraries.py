"""Networks of torchvision and timm: equal to the full network's own layers, with any weights, cut
off and frozen.
"""

import copy
import hashlib
import pickle
import re
import urllib.error
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from pictures import random_pixels
from refusals import refuses
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close
from torchvision.models.vgg import cfgs, make_layers
from torchvision.transforms import Normalize

from captioning.backbones.scratch import Patches, SmallCNN
from captioning.backbones.timm import TimmBackbone
from captioning.backbones.torchvision import TorchvisionBackbone, dilate

NODE = "features.7"
CLOSE = {"atol": 1e-4, "rtol": 1e-4}  # float32 sums in another order
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def pictures(size):
    return random_pixels(2, 3, size, size)


def network(name, seed=7, **settings):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        of_timm = name in timm.list_models("test_*") or name.startswith("vit_")
        full = (
            timm.create_model(name, **settings)
            if of_timm
            else torchvision.models.get_model(name, weights=None)
        )
        for (
            module
        ) in full.modules():  # with random statistics, a difference in one normalisation shows
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 2)
    return full.eval()


def saved(folder, state):
    torch.save(state, folder / "weights.pt")
    return str(folder / "weights.pt")


def small(weights=None, name="test_vit", **settings):
    return TimmBackbone(name, weights, **({"size": 64} | settings))


def squeezenet(weights=None, node=NODE, size=33, **settings):
    return TorchvisionBackbone("squeezenet1_1", node, weights, size, **settings)


def patches(net, images):
    return net.forward_features(images)[:, 1:].mT  # the first is for the class, or a register


LAYERS = {
    ("squeezenet1_1", "features.12", 53): lambda net, images: net.features[:13](images),
    ("squeezenet1_1", "features.0", 17): lambda net, images: net.features[:1](images),
    ("squeezenet1_1", "features.3.squeeze", 33): lambda net, images: net.features[3].squeeze(
        net.features[:3](images)
    ),
    ("resnet18", "layer2", 37): lambda net, images: nn.Sequential(*list(net.children())[:6])(
        images
    ),
    ("swin_t", "features.1", 64): lambda net, images: net.features[:2](images).movedim(-1, 1),
    ("test_byobnet", None, 75): lambda net, images: net.forward_features(images),
    ("test_mambaout", None, 96): lambda net, images: net.forward_features(images).movedim(-1, 1),
    ("test_efficientnet", "blocks.2", 64): lambda net, images: net.blocks[:3](
        net.bn1(net.conv_stem(images))
    ),
    ("test_vit", None, 160): patches,
    ("vit_pwee_patch16_reg1_gap_256", None, 256): patches,
}


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_equals_the_full_networks_own_layers(case, tmp_path):
    (name, node, size), layers = case, LAYERS[case]
    full, statistics = network(name), HALVES if "vit" in name else IMAGENET
    save_file(full.state_dict(), tmp_path / "a.safetensors")
    kind = TimmBackbone if name.startswith(("test_", "vit_")) else TorchvisionBackbone
    backbone = kind(name, node=node, weights=str(tmp_path / "a.safetensors"), size=size)
    with torch.no_grad():
        expected = layers(full, Normalize(*statistics)(pictures(size) / 255)).flatten(2).mT
    assert expected.shape == (2, backbone.grid[0] * backbone.grid[1], backbone.dim)
    assert_close(backbone(pictures(size)), expected, **CLOSE)
    after = ("classifier", "features.13.", "layer3.", "extractor.blocks.3.", "conv_head.")
    assert node is None or not any(each in key for key in backbone.state_dict() for each in after)


def test_learned_positions_are_resized_as_timm_resizes_them(tmp_path):
    full = network("test_vit", dynamic_img_size=True)  # positions are resized as timm resizes them
    backbone = small(saved(tmp_path, full.state_dict()), size=96)
    with torch.no_grad():
        expected = patches(full, backbone.transform.normalise(pictures(96))).mT
    assert_close(backbone(pictures(96)), expected, **CLOSE)


@pytest.mark.parametrize(
    "build",
    [squeezenet, small, lambda **more: TorchvisionBackbone("resnet18", "layer1", None, 33, **more)],
)
def test_frozen_trained_and_copied(build):
    """Random weights follow the seed only when trained; batch normalisation keeps its statistics
    either way.
    """
    digests = []
    for trainable in (False, True):
        for seed in (1, 2):
            torch.manual_seed(seed)
            backbone = nn.ModuleList([build(trainable=trainable)]).train()[0]
            digests.append(backbone.digest)
            drawn = torch.rand(2)
            torch.manual_seed(seed)
            assert trainable != torch.equal(torch.rand(2), drawn)
            statistics = {name: buffer.clone() for name, buffer in backbone.network.named_buffers()}
            features = backbone(pictures(backbone.size))
            assert features.requires_grad == trainable
            if trainable:
                features.square().mean().backward()
                assert all(parameter.grad is not None for parameter in backbone.parameters())
            assert all(
                torch.equal(buffer, statistics[name])
                for name, buffer in backbone.network.named_buffers()
            )
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    # a deep copy of torch.fx' module forgets its mode
    for twin in (pickle.loads(pickle.dumps(backbone)), copy.deepcopy(backbone).train()):
        assert twin.digest == backbone.digest
        assert torch.equal(twin(pictures(backbone.size)), backbone(pictures(backbone.size)))


@pytest.mark.parametrize(
    "build, node, learning",
    [
        (
            lambda node: TorchvisionBackbone("resnet18", "layer3", None, 33, node),
            "layer2",
            {"layer2", "layer3"},
        ),
        (
            lambda node: small(node="blocks.2", trainable=node),
            "blocks.1",
            {"blocks.1", "blocks.2", "norm"},
        ),
    ],
)
def test_the_last_nodes_alone_learn(build, node, learning):
    backbone = build(node).train()
    backbone(pictures(backbone.size)).square().mean().backward()
    found = {
        name.split("extractor.")[1] for name, p in backbone.named_parameters() if p.grad is not None
    }
    assert {
        part for part in learning if any(f"{name}.".startswith(f"{part}.") for name in found)
    } == learning
    assert all(any(f"{name}.".startswith(f"{part}.") for part in learning) for name in found)


def test_digests_tell_everything_apart(tmp_path):
    state = network("squeezenet1_1").state_dict()
    weights = saved(tmp_path, state)
    digests = [squeezenet(weights).digest, squeezenet(weights, node="features.6").digest]
    digests += [squeezenet(weights, size=37).digest, squeezenet().digest]
    state["classifier.1.bias"] += 1  # after the node
    assert squeezenet(saved(tmp_path, state)).digest == digests[0]
    state["features.0.bias"][3] += 1e-3
    digests.append(squeezenet(saved(tmp_path, state)).digest)
    weights = saved(tmp_path, network("test_vit").state_dict())
    digests += [
        small(weights).digest,
        small(weights, node="blocks.4").digest,
        small(weights, size=80).digest,
    ]
    assert (
        small(weights, "test_vit.r160_in1k", trainable=True, checkpointing=True).digest
        == digests[5]
    )
    digests += [small().digest, small(None, "test_vit2").digest]
    assert len(set(digests)) == 10
    # files in half precision and without a classifier
    state = {
        k: v.half()
        for k, v in network("test_vit").state_dict().items()
        if not k.startswith("head.")
    }
    backbone = small(saved(tmp_path, state))
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}
    assert torch.equal(
        backbone.network.state_dict()["extractor.norm.weight"], state["norm.weight"].float()
    )


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_files_of_other_content(tmp_path):
    state = network("squeezenet1_1").state_dict()
    files = {
        "missing.pt": {
            key: value for key, value in state.items() if key != "features.3.squeeze.bias"
        },
        "deeper.pt": state | {"features.99.weight": torch.zeros(1)},
        "other.pt": network("squeezenet1_0").state_dict(),
        "run.pt": {"state_dict": {}, "epoch": 3},
        "list.pt": [1, 2],
        "code.pt": {"features.0.weight": Payload(tmp_path / "executed")},
        "cut.pt": state,
    }
    for name, content in files.items():
        torch.save(content, tmp_path / name)
    save_file(state, tmp_path / "cut.safetensors")
    save_file(state, tmp_path / "noise.safetensors")
    for name in ("cut.pt", "cut.safetensors"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-9])
    (tmp_path / "noise.safetensors").write_bytes(
        b"\xff" * 8 + (tmp_path / "noise.safetensors").read_bytes()[8:]
    )
    for name in (*files, "cut.safetensors", "noise.safetensors", "absent.pt", "absent.safetensors"):
        with pytest.raises(Exception, match=name):
            squeezenet(str(tmp_path / name))
    assert not (tmp_path / "executed").exists()


def test_files_with_the_names_of_open_clip_and_of_dinov2(tmp_path):
    """open_clip keeps a network of timm as the trunk of its image tower, beside that of text."""
    plain = network("test_vit").state_dict()
    tower = {f"visual.trunk.{key}": value for key, value in plain.items() if "head" not in key}
    of_text = {"logit_scale": torch.ones(()), "text.positional_embedding": torch.ones(2, 2)}
    of_dino = {key: value for key, value in plain.items() if "head" not in key} | {
        "mask_token": torch.zeros(1, plain["cls_token"].shape[-1])
    }
    expected = small(saved(tmp_path, plain))(pictures(64))
    for state in (tower | of_text, of_dino):
        assert_close(small(saved(tmp_path, state))(pictures(64)), expected)


def test_downloads(tmp_path, monkeypatch):
    """From the cache of the hub's client, which asks nobody; torchvision's without a network."""

    def unreachable(*_, **__):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", unreachable)
    vit = re.escape("https://huggingface.co/timm/test_vit.r160_in1k/resolve/main/model.safetensors")
    with refuses(rf"no weights of test_vit.*{vit}.*backbone\.weights=FILE"):
        small("DEFAULT")
    place = tmp_path / "hub" / "checkpoints" / "squeezenet1_1-b8a52dc0.pth"
    address = "https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth"
    with refuses(f"no route.*{address}.*put it at {place}, or set backbone.weights=FILE"):
        squeezenet("DEFAULT")
    full, commit = network("test_vit"), hashlib.sha1(b"").hexdigest()
    folder = tmp_path / "models--timm--test_vit.r160_in1k"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots" / commit).mkdir(parents=True)
    file = folder / "snapshots" / commit / "model.safetensors"
    save_file(full.state_dict(), file)
    assert small("DEFAULT").digest == small(str(file)).digest


@pytest.mark.parametrize(
    "build, settings, named",
    [
        (squeezenet, {"node": "features.13"}, r"backbone.node=features.13 .*features\.1"),
        (squeezenet, {"node": "flatten"}, r"\(1, 1000\), not a feature map"),
        (squeezenet, {"stride_in_1x1": True}, "true is wrong here"),
        (squeezenet, {"dilation": 2}, "dilation=2 .*squeezenet1_1"),
        (small, {"name": "efficientnet_light2"}, "backbone.name=.* efficientnet_lite2"),
        (small, {"name": "hf-hub:timm/test_vit"}, "backbone.name=hf-hub:timm/test_vit"),
        (small, {"node": "layer4"}, "backbone.node=layer4.* blocks.5"),
        (small, {"size": 100}, "backbone.size=100 .*16"),
        (small, {"trainable": "block.4"}, r"backbone.trainable=block.4 .* blocks.4"),
        (SmallCNN, {"size": 100, "grid": 14}, "backbone.size=100 .*56, 112, 224"),
        (SmallCNN, {"dim": 0}, r"\ndim\n"),
        (Patches, {"size": 100}, "backbone.size=100"),
        (Patches, {"patch": 7}, "backbone.patch=7"),
    ],
)
def test_impossible_settings(build, settings, named):
    with pytest.raises(Exception, match=named):
        build(**settings)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A ResNet with random weights and the file of them, which fits both kinds."""
    full = network("resnet50", 5)
    state = {key: value for key, value in full.state_dict().items() if "layer4" not in key}
    return full, saved(tmp_path_factory.mktemp("weights"), state)


@pytest.mark.parametrize("in_1x1", [False, True])
def test_both_kinds_of_resnets(resnet, in_1x1):
    full, weights = resnet
    layers = copy.deepcopy(nn.Sequential(*list(full.children())[:7]))
    for stage in (5, 6) if in_1x1 else ():
        layers[stage][0].conv1.stride, layers[stage][0].conv2.stride = (2, 2), (1, 1)
    with torch.no_grad():
        expected = layers(Normalize(*IMAGENET)(pictures(64) / 255)).flatten(2).mT
    one = TorchvisionBackbone("resnet50", "layer3", weights, 64, stride_in_1x1=in_1x1)
    two = TimmBackbone("resnet50.tv_in1k", weights, "layer3", 64, stride_in_1x1=in_1x1)
    for backbone in (one, two):
        assert_close(backbone(pictures(64)), expected, **CLOSE)
    other = TorchvisionBackbone("resnet50", "layer3", weights, 64, stride_in_1x1=not in_1x1)
    assert other.digest != one.digest
    assert not torch.allclose(other(pictures(64)), expected, atol=1e-2)


def test_a_resnets_file_is_told(resnet):
    told = r"two ways.*stride_in_1x1=true for .*Caffe.*stride_in_1x1=false for"
    for kind, node in ((TorchvisionBackbone, "layer3"), (TimmBackbone, None)):
        with pytest.raises(Exception, match=told):
            kind("resnet50", node=node, weights=resnet[1], size=64)


@pytest.mark.parametrize("dilation", [2, 4])
@torch.no_grad()
def test_the_coarse_grid_is_within_the_dilated_one_to_its_edges(dilation):
    torch.manual_seed(0)
    coarse = make_layers(cfgs["A"])[:20].double()  # vgg11 to features.19
    fine = copy.deepcopy(coarse)
    dilate(fine, dilation, "vgg11")
    assert [*fine.state_dict()] == [*coarse.state_dict()]
    images = torch.randn(2, 3, 64, 48).double()
    one, other = coarse(images), fine(images)
    assert (one.shape[2:], other.shape[2:]) == ((4, 3), (4 * dilation, 3 * dilation))
    assert_close(other[:, :, ::dilation, ::dilation], one, rtol=0, atol=1e-12)
    assert (
        other[:, :, 1::dilation] - other[:, :, ::dilation]
    ).abs().mean() > 0.01 * one.abs().mean()  # and finer
    backbone = TorchvisionBackbone("vgg11", "features.19", None, size=32, dilation=dilation)
    assert backbone(pictures(32)).shape == (2, (2 * dilation) ** 2, 512)
    before, backbone.settings = backbone.digest, "torchvision vgg11 features.19"
    assert backbone.digest != before
    with pytest.raises(Exception, match=r"[12] or more poolings before the node"):
        dilate(make_layers(cfgs["A"])[:2], dilation, "vgg11")


def test_a_map_is_averaged_to_another_grid():
    """From 8 x 8 to 14 x 14, cell i is the mean of rows floor(8 i / 14) to ceil(8 (i + 1) / 14)."""
    settings = {"name": "resnet50", "node": "layer2", "weights": None, "size": 64}
    plain, pooled = (TorchvisionBackbone(**settings, pool=pool) for pool in (None, (14, 14)))
    assert plain.digest != pooled.digest
    images = pictures(64)
    coarse, fine = plain(images).unflatten(1, (8, 8)), pooled(images).unflatten(1, (14, 14))
    for row, column in ((0, 0), (3, 9), (13, 13)):
        rows, columns = (slice(8 * i // 14, -(-8 * (i + 1) // 14)) for i in (row, column))
        assert_close(fine[:, row, column], coarse[:, rows, columns].mean((1, 2)))
