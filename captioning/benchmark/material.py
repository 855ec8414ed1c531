"""Synthetic benchmark inputs, and networks, a training step and a checkpoint with random weights.

B images, N captions per image, L context vectors of D features, V words.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from PIL import Image
from torch import nn

from captioning.backbones import Backbone
from captioning.backbones.context import ContextSet
from captioning.benchmark.naive import OnePerCaption
from captioning.config.registry import build, strip_extra_keys, without_weights
from captioning.data.batch import Batch, collate
from captioning.data.example import Example, Reference
from captioning.data.vocabulary import Vocabulary
from captioning.machine import device_called
from captioning.models import Captioner
from captioning.runs.checkpoint import with_digest
from captioning.tokens import NAMES
from captioning.training.objectives import BatchRandom, Objective, TrainingData

OPTIMIZER = Callable[..., torch.optim.Optimizer]

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = 2500
TOPIC = 12  # words that the captions of one image share


def random_batch(config: DictConfig, images: int, captions: int) -> Batch:
    """Unit-scale features `[B, L, D]` and captions of evenly drawn lengths and words."""
    words = _captions(config, images, captions)
    positions = config.context.grid[0] * config.context.grid[1]
    return collate(range(images), torch.randn(images, positions, config.context.features), words)


def random_task(config: DictConfig, images: int, captions: int) -> TrainingData:
    """Training set of those captions, for objectives that ask for it."""
    vocabulary = Vocabulary([f"w{i}" for i in range(len(NAMES), config.vocab_size)])
    texts = [[[f"w{i}" for i in ids] for ids in row] for row in _captions(config, images, captions)]
    return TrainingData(examples(texts), vocabulary)


def _captions(config: DictConfig, images: int, captions: int) -> list[list[list[int]]]:
    torch.manual_seed(0)
    shortest, longest = config.batch.words
    lengths = torch.randint(shortest, longest + 1, (images, captions)).tolist()
    return [
        [torch.randint(len(NAMES), config.vocab_size, (k,)).tolist() for k in row]
        for row in lengths
    ]


def photographs(folder: Path, number: int, width: int, height: int) -> list[Path]:
    """JPEG files of a colour gradient with noise, about as hard to decode as a photograph of their
    size.
    """
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[0 : 1 : 1j * height, 0 : 1 : 1j * width][:, :, :, None]
    paths = []
    for i in range(number):
        first, second, third = random.uniform(0, 255, (3, 3))
        pixels = (
            first
            + rows * (second - first)
            + columns * (third - first)
            + random.normal(0, 20, (height, width, 1))
        )
        paths.append(folder / f"{i}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return paths


def sentences(images: int, captions: int) -> list[list[str]]:
    """For each image its captions: 6 to 14 made-up words, frequent and rare as in English, half of
    them of one topic.

    Captions of an image have words and word order in common, as references and a good caption do.
    """
    random = np.random.default_rng(0)
    names: dict[
        str, None
    ] = {}  # different words of one to three syllables, the frequent ones short
    while len(names) < WORDS:
        names["".join(random.choice(SYLLABLES, 1 + (len(names) >= 40) + (len(names) >= 400)))] = (
            None
        )
    vocabulary = list(names)
    zipf = 1 / np.arange(1, WORDS + 1)
    zipf /= zipf.sum()
    made = []
    for _ in range(images):
        topic = random.choice(vocabulary, TOPIC, p=zipf)
        texts = []
        for length in random.integers(6, 15, captions):
            words = random.choice(vocabulary, length, p=zipf)
            shared = random.random(length) < 0.5
            words[shared] = np.resize(topic, length)[shared]
            texts.append(" ".join(words))
        made.append(texts)
    return made


def examples(captions: list[list[list[str]]]) -> list[Example]:
    """Of these words; their photographs do not exist and are never opened."""
    return [
        Example(
            i, Path(f"{i}.jpg"), tuple(Reference(" ".join(words), tuple(words)) for words in each)
        )
        for i, each in enumerate(captions)
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
    return model.to(device_called(config.device))


def built_backbone(config: DictConfig) -> Backbone:
    backbone: Backbone = build(
        "backbone", Backbone, without_weights(plain(config)["backbone"]), None
    )
    return backbone.to(device_called(config.device))


def built_checkpoint(config: DictConfig) -> dict[str, Any]:
    """Checkpoint of a run of backbone and model, with made-up words."""
    settings: Any = OmegaConf.to_container(config, resolve=True)
    backbone = built_backbone(config)
    words = [f"word{number}" for number in range(config.vocab_size - len(NAMES))]
    model = build(
        "model",
        Captioner,
        plain(config)["model"],
        None,
        vocab_size=config.vocab_size,
        **backbone.sizes,
    )
    networks = nn.ModuleDict({"backbone": backbone, "model": model})
    decoding = {
        "_target_": "captioning.decoding.greedy",
        "_partial_": True,
        "max_length": config.search.max_length,
    }
    parts = {name: settings[name] for name in ("backbone", "model")}
    content = {"config": {**parts, "decoding": decoding, "data": {}}, "words": words}
    return with_digest({"captioning": content, "state_dict": networks.cpu().state_dict()})


def training_step(
    config: DictConfig, precision: str, backend: str | None = None
) -> Callable[[Batch, bool], None]:
    """Forward, backward and optimiser step on a batch of features; naively, as if each caption came
    with an image.

    `backend` of `torch.compile` compiles the model as `callbacks=compiled` does.
    """
    model = built_model(config)
    if backend is not None:
        model.compile(dynamic=True, backend=backend)
    objective = build("objective", Objective, plain(config)["objective"], None).to(
        device_called(config.device)
    )
    images = max(config.batch.images, config.memory.training_images)
    objective.prepare(random_task(config, images, config.batch.captions), model)
    optimizer = build("optimizer", OPTIMIZER, plain(config)["optimizer"], None)(model.parameters())

    def step(batch: Batch, naive: bool) -> None:
        context = ContextSet(batch.inputs.float(), tuple(config.context.grid))
        with torch.autocast(
            batch.inputs.device.type, torch.bfloat16, enabled=precision == "bf16-mixed"
        ):
            used = OnePerCaption(model) if naive else model  # type: ignore[arg-type]
            loss = objective(used, context, batch, BatchRandom(0, 0, batch.index))
        (loss.total / loss.words).backward()
        objective.end_step(torch.clone)  # as of one process
        optimizer.step()
        optimizer.zero_grad()

    return step
