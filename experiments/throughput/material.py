"""Random batches, networks with random weights and a training step.

B images, N captions per image, L context vectors of D features, V words.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.config.registry import CONF, build
from captioning.config.schemas.parts import strip_extra_keys
from captioning.data.batch import Batch, collate
from captioning.data.example import Example, Reference
from captioning.data.vocabulary import Vocabulary
from captioning.machine import get_device
from captioning.models import Captioner
from captioning.tokens import NAMES
from captioning.training.objectives import BatchRandom, Objective, TrainingData
from experiments.throughput.naive import OnePerCaption

OPTIMIZER = Callable[..., torch.optim.Optimizer]


def composed(*overrides: str) -> DictConfig:
    """Compose `benchmark.yaml` with those settings."""
    with initialize_config_dir(str(Path(__file__).parent), version_base="1.3"):
        return compose("benchmark", [f"hydra.searchpath=['file://{CONF}']", *overrides])


def random_batch(config: DictConfig, images: int, captions: int) -> Batch:
    """Unit-scale features `[B, L, D]` and captions of evenly drawn lengths and words."""
    words = _captions(config, images, captions)
    positions = config.context.grid[0] * config.context.grid[1]
    return collate(range(images), torch.randn(images, positions, config.context.features), words)


def random_task(config: DictConfig, images: int, captions: int) -> TrainingData:
    """Training set of those captions, for objectives that ask for it.

    Its photographs do not exist and are never opened.
    """
    vocabulary = Vocabulary([f"w{i}" for i in range(len(NAMES), config.vocab_size)])
    examples = []
    for i, of_image in enumerate(_captions(config, images, captions)):
        texts = [tuple(f"w{word}" for word in ids) for ids in of_image]
        references = tuple(Reference(" ".join(words), words) for words in texts)
        examples.append(Example(i, Path(f"{i}.jpg"), references))
    return TrainingData(examples, vocabulary)


def _captions(config: DictConfig, images: int, captions: int) -> list[list[list[int]]]:
    torch.manual_seed(0)
    shortest, longest = config.batch.words
    lengths = torch.randint(shortest, longest + 1, (images, captions)).tolist()
    return [
        [torch.randint(len(NAMES), config.vocab_size, (k,)).tolist() for k in row]
        for row in lengths
    ]


def plain(config: DictConfig) -> dict[str, Any]:
    """Settings of the parts."""
    return strip_extra_keys(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]


def built_model(config: DictConfig) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"d_context": config.context.features, "grid": tuple(config.context.grid)}
    model: nn.Module = build(
        "model", Captioner, plain(config)["model"], None, vocab_size=config.vocab_size, **sizes
    )
    return model.to(get_device(config.device))


def training_step(
    config: DictConfig, precision: str, backend: str | None = None
) -> Callable[[Batch, bool], Tensor]:
    """Forward, backward and optimiser step on a batch of features, which gives the mean loss;
    naively, as if each caption came with an image.

    `backend` of `torch.compile` compiles the model as `callbacks=compiled` does.
    """
    model = built_model(config)
    if backend is not None:
        model.compile(dynamic=True, backend=backend)
    objective = build("objective", Objective, plain(config)["objective"], None).to(
        get_device(config.device)
    )
    objective.prepare(random_task(config, config.batch.images, config.batch.captions), model)
    optimizer = build("optimizer", OPTIMIZER, plain(config)["optimizer"], None)(
        list(model.parameters())
    )

    def step(batch: Batch, naive: bool) -> Tensor:
        context = ContextSet(batch.inputs.float(), tuple(config.context.grid))
        with torch.autocast(
            batch.inputs.device.type, torch.bfloat16, enabled=precision == "bf16-mixed"
        ):
            used = OnePerCaption(model) if naive else model  # type: ignore[arg-type]
            loss = objective(used, context, batch, BatchRandom(0, 0, batch.index))
        mean = loss.total / loss.words
        mean.backward()
        objective.on_optimizer_step(torch.clone)  # as of one process
        optimizer.step()
        optimizer.zero_grad()
        return mean.detach()

    return step
