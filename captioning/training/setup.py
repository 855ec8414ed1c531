"""The steps before training: settings become parts, captions a vocabulary, images inputs."""

import logging
import shutil
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
from captioning.data.dataset import Inputs
from captioning.data.example import SPLITS, Example, Splits, reference_texts
from captioning.data.image_files import readable
from captioning.data.module import CaptionData, check_lengths
from captioning.data.readers.groups import with_groups
from captioning.data.readers.reading import Reader
from captioning.data.subwords import build_vocabulary, load_vocabulary
from captioning.data.views import RandomChange
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError, quoted
from captioning.features.build import FeatureStore, MissingFeatures, check_space
from captioning.metrics import ScoredImage, Scorer
from captioning.metrics.table import unsupported_metrics
from captioning.models import Captioner
from captioning.pretrained.allocation import AllocationLimit
from captioning.runs.checkpoints.checkpoint import TrainedSettings
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
MANY_UNKNOWN = 0.15  # (D) more show that the words are not what repeats in these captions
IF_MANY = (
    "lower data.vocabulary.min_count, or set data.vocabulary.subwords=bpe; for a language "
    "without blanks set data.language=zh data.tokens=characters"
)
OF_CHECKPOINT = "the words are those that the checkpoint of init_from was trained with"

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
    splits = read_logged(reader, reads_images(parts["backbone"]), data.plain, needed=needed)
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
    if initial is not None and data.vocabulary == FROM_CHECKPOINT:
        return load_vocabulary(initial.vocabulary.saved, language)
    vocabulary = build_vocabulary(captions, **data.vocabulary)
    if initial is not None:
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
    if initial is not None:
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
    mode = settings.callbacks.checkpoint.mode
    schedule = partial(build_schedule, parts["schedule"], mode)
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
        stored=TrainedSettings(settings.plain),
        monitored=set(settings.callbacks.monitors.values()),
    )


def open_inputs(
    settings: RunSettings,
    parts: Parts,
    splits: Splits,
    module: CaptioningModule,
    whole: Sequence[Example],
) -> CaptionData:
    """The data module with what the backbone needs: images, or cached features at unit scale.

    `whole` is the training split that training may have a subset of.
    """
    splits = _used(settings, splits)
    backbone, data, train = module.backbone, settings.data, splits["train"]
    if torch.cuda.is_available():
        backbone.cuda()  # for features; the trainer moves it again
    changes: RandomChange = parts["data.view"].build()
    viewers = [backbone.with_transform(changes.view(k)) for k in range(1, data.views)]

    def open_from(store: FeatureStore) -> tuple[dict[str, Inputs], list[Inputs]]:
        inputs = {name: backbone.open_inputs(split, store, name) for name, split in splits.items()}
        views = [
            viewer.open_inputs(train, store, f"train, view {k} of {data.views}")
            for k, viewer in enumerate(viewers, 2)
        ]
        return inputs, views

    cache, paths = Path(settings.cache), [example.path for example in whole]
    store = FeatureStore(cache, paths, in_steps=not data.cache_features)
    images = sum(map(len, splits.values()))
    size = backbone.cached_bytes(images + len(viewers) * len(train))
    if size and data.cache_features:
        viewed = f", {len(train):,} of them in {data.views} views" if viewers else ""
        store.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(store.folder).free
        log.info(
            "features: %s images%s, %.2f GB in %s, where %.2f GB are free",
            f"{images:,}",
            viewed,
            size / 1e9,
            store.folder,
            free / 1e9,
        )
        if size > free:
            missing = MissingFeatures(cache, paths)
            open_from(missing)
            check_space(missing.size, store.folder)
    inputs, further = open_from(store)
    if settings.init_from is None:  # else the model knows them as they were scaled
        inputs["train"].fit_scale(backbone)
    opened = CaptionData(
        splits,
        inputs,
        module.vocabulary,
        batch_size=data.batch_size,
        eval_batch_size=data.eval_batch_size,
        captions_per_image=data.captions_per_image,
        max_words=data.max_words,
        max_pieces=data.max_pieces,
        num_workers=data.num_workers,
        seed=settings.seed,
        views=further,
    )
    _log_sizes(settings, module, opened)
    return opened


def _used(settings: RunSettings, splits: Splits) -> Splits:
    """The splits and images that a run needs, so that no unused features are computed."""
    if not settings.test:
        splits = {name: examples for name, examples in splits.items() if name != "test"}
    if not settings.debug:
        return splits
    two_batches = 2 * max(settings.data.batch_size, settings.data.eval_batch_size)
    return {name: examples[:two_batches] for name, examples in splits.items()}


def _log_sizes(settings: RunSettings, module: CaptioningModule, data: CaptionData) -> None:
    """Log the sizes of data, vocabulary and networks, and what is left out or unknown."""
    log.info("%s", data.described)
    loaded = settings.data.vocabulary == FROM_CHECKPOINT
    if settings.data.train_images is not None:
        words = {"subset": "these images", "all": "the whole split"}
        source = "the checkpoint" if loaded else words[settings.data.vocabulary_images]
        log.info("a subset of the training split; the vocabulary is that of %s", source)
    networks = module.model, module.backbone
    sizes = [f"{sum(p.numel() for p in network.parameters()):,}" for network in networks]
    state = "trainable" if module.backbone.trainable else "frozen"
    log.info("parameters: model %s, backbone %s (%s)", *sizes, state)
    metrics = [*settings.metrics.val, *settings.metrics.test]
    for line in unsupported_metrics(metrics, module.vocabulary.language.code):
        log.info("%s", line)
    if data.unknown > MANY_UNKNOWN:
        text = "%.0f %% of the words of the training captions are unknown: %s"
        log.warning(text, 100 * data.unknown, OF_CHECKPOINT if loaded else IF_MANY)


def _build(parts: Parts, key: str, **more: Any) -> Any:
    """Build a part, once, and log its name."""
    built = replace(parts[key], partial=False).build(**more)
    log.debug("%s: %s", key, parts[key].target.__name__)  # shown by hydra.verbose=captioning
    return built
