"""Networks, a training step and a checkpoint with random weights, built from the configuration."""

from collections.abc import Callable
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn

from captioning.backbones import Backbone
from captioning.backbones.context import ContextSet
from captioning.benchmark.material import random_task
from captioning.benchmark.naive import OnePerCaption
from captioning.config.registry import of_parts, without_weights
from captioning.data.batch import Batch
from captioning.machine import device_called
from captioning.runs.checkpoint import with_digest
from captioning.tokens import NAMES
from captioning.training.objectives import BatchRandom


def plain(config: DictConfig) -> dict[str, Any]:
    """Settings of the parts."""
    return of_parts(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]


def built_model(config: DictConfig) -> nn.Module:
    """Captioner on its device, in training mode."""
    torch.manual_seed(0)
    sizes = {"d_context": config.context.features, "grid": tuple(config.context.grid)}
    model: nn.Module = instantiate(plain(config)["model"], vocab_size=config.vocab_size, **sizes)
    return model.to(device_called(config.device))


def built_backbone(config: DictConfig) -> Backbone:
    """Backbone on its device."""
    backbone: Backbone = instantiate(without_weights(OmegaConf.to_container(config.backbone, resolve=True)))
    return backbone.to(device_called(config.device))


def built_checkpoint(config: DictConfig) -> dict[str, Any]:
    """Checkpoint of a run of backbone and model, with made-up words."""
    settings: Any = OmegaConf.to_container(config, resolve=True)
    backbone = built_backbone(config)
    words = [f"word{number}" for number in range(config.vocab_size - len(NAMES))]
    model = instantiate(plain(config)["model"], vocab_size=config.vocab_size, **backbone.sizes)
    networks = nn.ModuleDict({"backbone": backbone, "model": model})
    decoding = {"_target_": "captioning.decoding.greedy", "_partial_": True, "max_length": config.search.max_length}
    parts = {name: settings[name] for name in ("backbone", "model")}
    content = {"config": {**parts, "decoding": decoding, "data": {}}, "words": words}
    return with_digest({"captioning": content, "state_dict": networks.cpu().state_dict()})


def training_step(config: DictConfig, precision: str) -> Callable[[Batch, bool], None]:
    """Forward, backward and optimiser step on a batch of features; naively, as if each caption came with an image."""
    model = built_model(config)
    objective = instantiate(config.objective).to(device_called(config.device))
    images = max(config.batch.images, config.memory.training_images)
    objective.prepare(random_task(config, images, config.batch.captions), model)
    optimizer = instantiate(plain(config)["optimizer"])(model.parameters())

    def step(batch: Batch, naive: bool) -> None:
        context = ContextSet(batch.inputs.float(), tuple(config.context.grid))
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            used = OnePerCaption(model) if naive else model  # type: ignore[arg-type]
            loss = objective(used, context, batch, BatchRandom(0, 0, batch.index))
        (loss.total / loss.words).backward()
        objective.end_step(torch.clone)  # as of one process
        optimizer.step()
        optimizer.zero_grad()

    return step
