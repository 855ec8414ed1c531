"""Weights of timm's networks: from a file, from its download and from a checkpoint."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from support import composed
from test_timm import network, saved, small

from captioning.config.registry import build
from captioning.config.settings import of_parts
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.runs.checkpoint import with_digest
from captioning.runs.networks import load_network


def test_half_precision_is_widened_and_a_classifier_is_not_needed(tmp_path: Path) -> None:
    state = {k: v.half() for k, v in network("test_vit").state_dict().items() if not k.startswith("head.")}
    torch.save(state, tmp_path / "half.pt")
    backbone = small(str(tmp_path / "half.pt"))
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}
    assert torch.equal(backbone.network.state_dict()["extractor.norm.weight"], state["norm.weight"].float())


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:30], lambda b: b"\xff" * 8 + b[8:], lambda _: b""])
def test_corrupt_safetensors(tmp_path: Path, damage: Any) -> None:
    path = Path(saved(tmp_path, network("test_vit")))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CaptioningError, match=r"weights\.safetensors"):
        small(str(path))
    with pytest.raises(CaptioningError, match=r"absent\.safetensors"):
        small(str(tmp_path / "absent.safetensors"))


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the hub's client, which asks nobody."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_failed_download_says_which_file_to_fetch(offline: Path) -> None:
    with pytest.raises(
        CaptioningError, match=r"cannot get timm's weights for test_vit: .*set backbone\.weights=FILE"
    ) as caught:
        small("DEFAULT")
    assert "/timm/test_vit.r160_in1k/resolve/main/model.safetensors" in str(caught.value)


def test_downloaded_weights(offline: Path) -> None:
    full, commit = network("test_vit"), hashlib.sha1(b"").hexdigest()
    folder = offline / "models--timm--test_vit.r160_in1k"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots" / commit).mkdir(parents=True)
    file = Path(saved(offline, full)).rename(folder / "snapshots" / commit / "model.safetensors")
    assert small("DEFAULT").digest == small(str(file)).digest


def test_a_captioner_loads_no_weights_but_its_checkpoints(offline: Path) -> None:
    config: Any = {
        "backbone": {"_target_": "captioning.backbones.timm.TimmBackbone", "name": "test_vit", "size": 64},
        "model": OmegaConf.to_container(composed("model=show_tell_small").model),
        "decoding": {},
        "data": {},
    }
    backbone = build("backbone", config["backbone"] | {"weights": saved(offline, network("test_vit"))})
    words = ["a", "dog"]
    model = build("model", of_parts(config)["model"], vocab_size=len(Vocabulary(words)), **backbone.sizes)
    state = {f"backbone.{k}": v for k, v in backbone.state_dict().items()}
    state |= {f"model.{k}": v for k, v in model.state_dict().items()}
    config["backbone"]["weights"] = "DEFAULT"
    torch.save(with_digest({"state_dict": state, "captioning": {"config": config, "words": words}}), offline / "c.ckpt")
    _, _, found = load_network(offline / "c.ckpt", torch.device("cpu"), [])
    assert found.backbone.digest == backbone.digest
