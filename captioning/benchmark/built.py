"""Build the parts that are measured from the configuration.

B images, N captions per image, L context vectors of D features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import nn

from captioning.backbones import Backbone
from captioning.backbones.context import ContextSet
from captioning.benchmark.material import random_task
from captioning.benchmark.naive import OnePerCaption
from captioning.config.check import model_settings, optimizer_settings
from captioning.config.settings import without_weights
from captioning.data.batch import Batch
from captioning.runs.checkpoint import with_digest
from captioning.tokens import NAMES
from captioning.training.objectives import BatchRandom, Objective


def chosen_device(config: DictConfig) -> torch.device:
    """Device of `device=auto|cpu|cuda`; `auto` is the GPU if there is one."""
    cuda = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    return torch.device("cuda" if cuda else "cpu")


def built_model(config: DictConfig) -> nn.Module:
    """Captioner with random weights, on its device, in training mode."""
    torch.manual_seed(0)
    grid = tuple(config.context.grid)
    model: nn.Module = instantiate(
        model_settings(config), vocab_size=config.vocab_size, d_context=config.context.features, grid=grid
    )
    return model.to(chosen_device(config))


def built_backbone(config: DictConfig) -> Backbone:
    """Backbone with random weights, on its device."""
    backbone: Backbone = instantiate(without_weights(OmegaConf.to_container(config.backbone, resolve=True)))
    return backbone.to(chosen_device(config))


def built_checkpoint(config: DictConfig) -> dict[str, Any]:
    """Checkpoint of a run of backbone and model, with random weights and made-up words."""
    settings: Any = OmegaConf.to_container(config, resolve=True)
    backbone = built_backbone(config)
    words = [f"word{number}" for number in range(config.vocab_size - len(NAMES))]
    model = instantiate(model_settings(config), vocab_size=config.vocab_size, **backbone.sizes)
    networks = nn.ModuleDict({"backbone": backbone, "model": model})
    decoding = {"_target_": "captioning.decoding.greedy", "_partial_": True, "max_length": config.search.max_length}
    parts = {name: settings[name] for name in ("backbone", "model")}
    content = {"config": {**parts, "decoding": decoding, "data": {}}, "words": words}
    return with_digest({"captioning": content, "state_dict": networks.cpu().state_dict()})


@dataclass
class TrainingStep:
    """Forward, backward and optimiser step, without the rest of the training loop."""

    model: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer
    grid: tuple[int, int]
    bfloat16: bool

    @classmethod
    def built(cls, config: DictConfig, precision: str) -> "TrainingStep":
        """Build model, objective and optimiser."""
        model = built_model(config)
        objective = instantiate(config.objective).to(chosen_device(config))
        images = max(config.batch.images, config.memory.training_images)
        objective.prepare(random_task(config, images, config.batch.captions), model)
        optimizer = instantiate(optimizer_settings(config))(model.parameters())
        return cls(model, objective, optimizer, tuple(config.context.grid), precision == "bf16-mixed")

    def __call__(self, batch: Batch, naive: bool = False) -> None:
        """Learn from features `[B, L, D]` and captions; naively, as if each caption came with an image."""
        model = OnePerCaption(self.model) if naive else self.model  # type: ignore[arg-type]
        context = ContextSet(batch.inputs.float(), self.grid)
        draws = BatchRandom(0, 0, batch.index)
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = self.objective(model, context, batch.sources, batch.targets, batch.word_index, draws)
        (loss.total / loss.words).backward()
        self.objective.end_step(_of_this_process)
        self.optimizer.step()
        self.optimizer.zero_grad()


_of_this_process: Callable[[torch.Tensor], torch.Tensor] = torch.clone
