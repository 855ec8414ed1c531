"""The steps before training: settings become parts, and captions a vocabulary."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.pytorch.loggers import Logger
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from captioning.backbones.base import Backbone
from captioning.config.registry import (
    CheckedPart,
    build,
    check_part,
    class_name,
    modules_of,
    preparing,
    without_weights,
)
from captioning.config.schemas.run import RunDataSettings, RunSettings
from captioning.config.types import PartConfig
from captioning.data.example import SPLITS, Splits, reference_texts
from captioning.data.image_files import readable
from captioning.data.module import check_lengths
from captioning.data.readers.groups import with_groups
from captioning.data.readers.reading import Reader
from captioning.data.subwords import build_vocabulary, load_vocabulary
from captioning.data.views import RandomChange
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError, quoted
from captioning.metrics import ScoredImage, Scorer
from captioning.models import Captioner
from captioning.pretrained.allocation import AllocationLimit
from captioning.runs.checkpoints.initial import PretrainedWeights, model_limit
from captioning.runs.evaluation.data_set import read_logged
from captioning.runs.evaluation.searches import SEARCH, build_search
from captioning.tokens import FROM_CHECKPOINT
from captioning.training.fit import check_devices, with_checkpoint_files
from captioning.training.module import CaptioningModule
from captioning.training.objectives import Objective, TrainingData
from captioning.training.rules import check_rules
from captioning.training.schedule import build_schedule

Parts = Mapping[str, CheckedPart]
Words = Iterable[Sequence[str]]
TRIED_STEPS = 1_000_000
log = logging.getLogger(__name__)


def check_parts(settings: RunSettings) -> dict[str, CheckedPart]:
    """Refuse arguments that no part takes; nothing is read or built.

    Parts that a captioner is loaded with must be importable as from a checkpoint; others may come
    from any module.
    """
    loaded: dict[str, tuple[Any, PartConfig]] = {
        "decoding": (SEARCH, settings.decoding.part),
        "backbone": (Backbone, settings.backbone),
        "model": (Captioner, settings.model.part),
        "data.reader": (Reader, settings.data.reader),
    }
    parts = {
        key: check_part(key, base, part, modules_of(part)) for key, (base, part) in loaded.items()
    }
    check_devices(settings.trainer)
    own: dict[str, tuple[Any, PartConfig]] = {
        "data.view": (RandomChange, settings.data.view),
        "objective": (Objective, settings.objective),
        "optimizer": (Callable[..., Optimizer], settings.optimizer.part),
        "schedule": (Callable[..., LRScheduler], settings.schedule),
        "trainer": (Trainer, with_checkpoint_files(settings.trainer)),
    }
    own |= {f"callbacks.{name}": (Callback, c) for name, c in settings.callbacks.parts.items()}
    own |= {f"logger.{name}": (Logger, part) for name, part in settings.loggers.items()}
    return parts | {key: check_part(key, base, part, None) for key, (base, part) in own.items()}


def reads_images(backbone: CheckedPart) -> bool:
    """Whether a backbone, or a member of it, reads image files."""
    members = [value for value in backbone.arguments.values() if isinstance(value, CheckedPart)]
    reads = getattr(backbone.target, "reads_images", True)
    return reads and (not members or any(map(reads_images, members)))


def read_training_data(settings: RunSettings, parts: Parts) -> Splits:
    """The examples; with `data.skip_broken` entries that cannot be used are left out and logged.

    Image files must be there if the backbone reads them; none is opened.
    """
    reader = _build(parts, "data.reader")
    needed = SPLITS if settings.test else ("train", "val")
    data = settings.data
    images, cache = reads_images(parts["backbone"]), Path(settings.cache)
    splits = read_logged(reader, images, data.plain, needed=needed, cache=cache)
    test = with_groups(splits["test"], data.groups, data.caption_language)
    splits = {**splits, "test": test}
    for name in needed:
        if not any(example.references for example in splits[name]):
            raise CaptioningError(
                f"the split {name} has no captions: for a test set of a challenge set test=false, "
                "then captioning evaluate with results=FILE captions it for the server"
            )
    check_lengths(splits["train"], data.max_words)
    return splits


def build_backbone(
    settings: RunSettings, parts: Parts, initial: PretrainedWeights | None = None
) -> Backbone:
    """The backbone with its weights, which are those of `initial` if there is one."""
    if initial is None:
        backbone = _build(parts, "backbone")
    else:
        with AllocationLimit():
            backbone = build("backbone", Backbone, without_weights(settings.backbone), None)
        initial.fill("backbone", backbone)
    changes = parts["data.view"].build()  # or it would be refused after features are computed
    if not (settings.data.cache_features or backbone.reads_images):
        raise CaptioningError(
            "data.cache_features=false needs a backbone that reads images; this one does not"
        )
    if settings.data.views > 1:
        backbone.with_transform(changes.view(1))  # or it says that it has none
    return backbone


def check_images(settings: RunSettings, splits: Splits, backbone: Backbone) -> Splits:
    """Open every image that is not opened anyway to compute features of it; with
    `data.skip_broken` unreadable ones are left out.
    """
    skip = settings.data.skip_broken
    opened = backbone.trainable or not settings.data.cache_features
    if backbone.reads_images and (opened or skip):
        return readable(splits, backbone.transform, Path(settings.cache) / "photographs", skip)
    return splits


def choose_vocabulary(
    data: RunDataSettings, captions: Words, initial: PretrainedWeights | None
) -> Vocabulary:
    """That of the captions; with `data.vocabulary=checkpoint`, that of `initial`."""
    language = data.caption_language
    if initial and data.vocabulary == FROM_CHECKPOINT:
        return load_vocabulary(initial.vocabulary.saved, language)
    vocabulary = build_vocabulary(captions, **data.vocabulary)
    if initial:
        initial.check_vocabulary(vocabulary)
    return load_vocabulary(vocabulary.saved, language)


def build_module(
    settings: RunSettings,
    parts: Parts,
    splits: Splits,
    captions: Words,
    backbone: Backbone,
    initial: PretrainedWeights | None = None,
) -> CaptioningModule:
    """Model, objective, search, scorers and optimizer in their Lightning module.

    The vocabulary is built from `captions`.

    Raises:
        CaptioningError: they do not go together.
    """
    vocabulary = choose_vocabulary(settings.data, captions, initial)
    with model_limit(settings.model.path, initial):
        model = _build(parts, "model", vocab_size=len(vocabulary), **backbone.sizes)
    task = TrainingData(splits["train"], vocabulary)
    if initial:
        initial.fill("model", model)
    else:
        with preparing("model"):
            try:
                model.prepare(task.counts, vocabulary.tokenizer_ids)
            except ValueError as error:
                raise CaptioningError(f"model.{quoted(error)}") from error
    objective = _build(parts, "objective")
    check_rules(settings, parts, backbone, model, objective)
    with preparing("objective"):
        objective.prepare(task, model)
    decoding, limit = settings.decoding.part, settings.model.max_tokens
    modules = modules_of(decoding)
    search = build_search(decoding, vocabulary, limit, modules)
    for width in settings.decoding.beam_widths or ():  # or it would be refused after training
        build_search({**decoding, "width": width}, vocabulary, limit, modules)
    log.debug("decoding: %s", class_name(decoding))
    metrics = {"val": settings.metrics.val, "test": settings.metrics.test}
    scorers = {
        split: Scorer(
            reference_texts(splits[split]),
            [*names, *settings.data.metrics],
            settings.metrics.timeout,
            vocabulary.language,
            [ScoredImage(example.image_id, example.path) for example in splits[split]],
        )
        for split, names in metrics.items()
        if names
    }
    schedule = partial(build_schedule, parts["schedule"], settings.callbacks.checkpoint.mode)
    # or it would be refused after features are computed
    schedule(SGD([nn.Parameter(torch.zeros(1))], momentum=0.9), TRIED_STEPS)
    return CaptioningModule(
        backbone=backbone,
        model=model,
        objective=objective,
        search=search,
        scorers=scorers,
        vocabulary=vocabulary,
        optimizer=lambda parameters: _build(parts, "optimizer", params=parameters),
        backbone_lr=settings.optimizer.backbone_lr,
        pretrained_lr=settings.optimizer.pretrained_lr,
        schedule=schedule,
        seed=settings.seed,
        stored=settings,
        monitored=set(settings.callbacks.monitors.values()),
    )


def _build(parts: Parts, key: str, **more: Any) -> Any:
    """Build a part, once, and log its name."""
    built = replace(parts[key], partial=False).build(**more)
    log.debug("%s: %s", key, parts[key].target.__name__)  # shown by hydra.verbose=captioning
    return built
