"""The steps before training: settings become parts, captions a vocabulary, images inputs."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.pytorch.loggers import Logger
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from captioning.backbones.base import Backbone
from captioning.config.registry import (
    CheckedPart,
    build,
    check_part,
    class_name,
    modules_of,
    strip_extra_keys,
    validate_arguments,
    without_weights,
)
from captioning.config.settings import check_reader
from captioning.config.types import Config
from captioning.data.example import SPLITS, Example, Splits, reference_texts
from captioning.data.module import CaptionData, check_lengths
from captioning.data.photographs import readable
from captioning.data.readers.groups import with_groups
from captioning.data.subwords import build_vocabulary, load_vocabulary
from captioning.data.views import RandomChange
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import Language
from captioning.errors import CaptioningError, quoted
from captioning.features.build import FeatureStore
from captioning.metrics import ScoredImage, Scorer
from captioning.metrics.table import unsupported_metrics
from captioning.models import Captioner
from captioning.pretrained.allocation import AllocationLimit
from captioning.runs.checkpoints.initial import PretrainedWeights, model_limit
from captioning.runs.evaluation.data_set import read_logged
from captioning.runs.evaluation.searches import build_search, check_search
from captioning.tokens import FROM_CHECKPOINT
from captioning.training.fit import check_devices, with_checkpoint_files
from captioning.training.module import CaptioningModule
from captioning.training.objectives import Objective, TrainingData
from captioning.training.rules import check_rules

Parts = Mapping[str, CheckedPart]
Words = Iterable[Sequence[str]]
MANY_UNKNOWN = 0.15  # (D) more show that the words are not what repeats in these captions
IF_MANY = (
    "lower data.vocabulary.min_count, or set data.vocabulary.subwords=bpe; for a language "
    "without blanks set data.language=zh data.tokens=characters"
)
OF_CHECKPOINT = "the words are those that the checkpoint of init_from was trained with"
DATA = (
    "batch_size",
    "eval_batch_size",
    "captions_per_image",
    "max_words",
    "max_pieces",
    "num_workers",
)
"""Settings of the data module."""
ANY_SOURCE = {
    "objective": Objective,
    "optimizer": Callable[..., Optimizer],
    "schedule": Callable[..., LRScheduler],
    "trainer": Trainer,
}
"""What parts must be that a captioner is loaded without, from any module."""

log = logging.getLogger(__name__)


def check_parts(config: Config) -> dict[str, CheckedPart]:
    """Refuse arguments that no part takes; nothing is read or built.

    Parts that a captioner is loaded with must be importable as from a checkpoint.
    """
    config = strip_extra_keys(config)
    data = config["data"]
    arguments = {"seed": config["seed"], **{name: data.get(name) for name in DATA}}
    validate_arguments("data", CaptionData, arguments)
    check_search(config["decoding"], modules_of(config["decoding"]))
    parts = {
        key: check_part(key, base, config[key], modules_of(config[key]))
        for key, base in (("backbone", Backbone), ("model", Captioner))
    }
    parts["data.reader"] = check_reader(data["reader"])
    parts["data.view"] = check_part("data.view", RandomChange, data["view"], None)
    check_devices(config["trainer"])
    config["trainer"] = with_checkpoint_files(config["trainer"])
    for key, base in ANY_SOURCE.items():
        parts[key] = check_part(key, base, config[key], None)
    for group, base in (("callbacks", Callback), ("logger", Logger)):
        for name, node in (config.get(group) or {}).items():
            if node is not None:
                parts[f"{group}.{name}"] = check_part(f"{group}.{name}", base, node, None)
    return parts


def reads_images(backbone: CheckedPart) -> bool:
    """Whether a backbone, or a member of it, reads image files."""
    members = [value for value in backbone.arguments.values() if isinstance(value, CheckedPart)]
    reads = getattr(backbone.target, "reads_photographs", True)
    return reads and (not members or any(map(reads_images, members)))


def read_training_data(config: Config, parts: Parts) -> Splits:
    """The examples; with `data.skip_broken` entries that cannot be used are left out and logged.

    Image files must be there if the backbone reads them; none is opened.
    """
    reader = _build(parts, "data.reader")
    needed = SPLITS if config["test"] else ("train", "val")
    data = config["data"]
    splits = read_logged(reader, reads_images(parts["backbone"]), data, needed=needed)
    test = with_groups(splits["test"], data["groups"], Language.of(data))
    splits = {**splits, "test": test}
    for name in needed:
        if not any(example.references for example in splits[name]):
            raise CaptioningError(
                f"the split {name} has no captions: for a test set of a challenge set test=false, "
                "then captioning evaluate with results=FILE captions it for the server"
            )
    check_lengths(splits["train"], data["max_words"])
    return splits


def build_backbone(
    config: Config, parts: Parts, initial: PretrainedWeights | None = None
) -> Backbone:
    """The backbone with its weights, which are those of `initial` if there is one."""
    if initial is None:
        backbone = _build(parts, "backbone")
    else:
        with AllocationLimit():
            backbone = build("backbone", Backbone, without_weights(config["backbone"]), None)
        initial.fill("backbone", backbone)
    if config["data"]["views"] > 1:
        backbone.with_transform(parts["data.view"].build().view(1))  # or it says that it has none
    return backbone


def check_images(config: Config, splits: Splits, backbone: Backbone) -> Splits:
    """Open every image that is not opened anyway to compute features of it; with `data.skip_broken`
    unreadable ones are left out.
    """
    skip = config["data"]["skip_broken"]
    if backbone.reads_photographs and (backbone.trainable or skip):
        return readable(splits, backbone.transform, Path(config["cache"]) / "photographs", skip)
    return splits


def choose_vocabulary(
    config: Config, captions: Words, initial: PretrainedWeights | None
) -> Vocabulary:
    """That of the captions; with `data.vocabulary=checkpoint`, that of `initial`."""
    settings, language = config["data"]["vocabulary"], Language.of(config["data"])
    if initial is not None and settings == FROM_CHECKPOINT:
        return load_vocabulary(initial.vocabulary.saved, language)
    vocabulary = build_vocabulary(captions, **settings)
    if initial is not None:
        initial.check_vocabulary(vocabulary)
    return load_vocabulary(vocabulary.saved, language)


def build_module(
    config: Config,
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
    vocabulary = choose_vocabulary(config, captions, initial)
    with model_limit(config, initial):
        model = _build(parts, "model", vocab_size=len(vocabulary), **backbone.sizes)
    task = TrainingData(splits["train"], vocabulary)
    if initial is not None:
        initial.fill("model", model)
    else:
        try:
            model.prepare(task.counts, vocabulary.tokenizer_ids)
        except ValueError as error:
            raise CaptioningError(f"model.{quoted(error)}") from error
    objective = _build(parts, "objective")
    check_rules(config, parts, backbone, model, objective)
    objective.prepare(task, model)
    decoding = strip_extra_keys(config)["decoding"]
    widths = config["decoding"].get("beam_widths") or ()
    limit, modules = config["model"].get("max_tokens"), modules_of(decoding)
    search = build_search(decoding, vocabulary, limit, modules)
    for width in widths:  # or it would be refused after training
        build_search({**decoding, "width": width}, vocabulary, limit, modules)
    log.debug("decoding: %s", class_name(decoding))
    metrics = config["metrics"]
    scorers = {
        split: Scorer(
            reference_texts(splits[split]),
            [*metrics[split], *config["data"]["metrics"]],
            metrics["timeout"],
            vocabulary.language,
            [ScoredImage(example.image_id, example.path) for example in splits[split]],
        )
        for split in ("val", "test")
        if metrics[split]
    }
    return CaptioningModule(
        backbone=backbone,
        model=model,
        objective=objective,
        search=search,
        scorers=scorers,
        vocabulary=vocabulary,
        optimizer=lambda parameters: _build(parts, "optimizer", params=parameters),
        backbone_lr=config["optimizer"].get("backbone_lr"),
        pretrained_lr=config["optimizer"].get("pretrained_lr"),
        schedule=parts["schedule"].build(),
        config=config,
    )


def open_inputs(
    config: Config,
    parts: Parts,
    splits: Splits,
    module: CaptioningModule,
    whole: Sequence[Example],
) -> CaptionData:
    """The data module with what the backbone needs: images, or cached features at unit scale.

    `whole` is the training split that training may have a subset of.
    """
    if not config["test"]:
        splits = {name: examples for name, examples in splits.items() if name != "test"}
    backbone, settings, cache = module.backbone, config["data"], Path(config["cache"])
    views = settings["views"]
    if config["debug"]:  # two batches, so that no unused features are computed
        size = 2 * max(settings["batch_size"], settings["eval_batch_size"])
        splits = {name: examples[:size] for name, examples in splits.items()}
    if torch.cuda.is_available():
        backbone.cuda()  # for features; the trainer moves it again
    train, images = splits["train"], sum(map(len, splits.values()))
    if size := backbone.cached_bytes(images + (views - 1) * len(train)):
        viewed = f", {len(train):,} of them in {views} views" if views > 1 else ""
        gigabytes, folder = size / 1e9, cache / "features"
        log.info("features: %s images%s, %.2f GB in %s", f"{images:,}", viewed, gigabytes, folder)
    store = FeatureStore(cache, [example.path for example in whole])
    inputs = {name: backbone.open_inputs(split, store, name) for name, split in splits.items()}
    if config["init_from"] is None:  # else the model knows them as they were scaled
        inputs["train"].fit_scale(backbone)
    changes: RandomChange = parts["data.view"].build()
    further = []
    for k in range(1, views):
        viewer, name = backbone.with_transform(changes.view(k)), f"train, view {k + 1} of {views}"
        further.append(viewer.open_inputs(train, store, name))
    own = {name: settings[name] for name in DATA}
    data = CaptionData(splits, inputs, module.vocabulary, views=further, seed=config["seed"], **own)
    count, frozen = (sum(p.numel() for p in part.parameters()) for part in (module.model, backbone))
    state = "trainable" if backbone.trainable else "frozen"
    sizes = f"parameters: model {count:,}, backbone {frozen:,} ({state})"
    metrics = [*config["metrics"]["val"], *config["metrics"]["test"]]
    left_out = unsupported_metrics(metrics, module.vocabulary.language.code)
    subset = []
    loaded = settings["vocabulary"] == FROM_CHECKPOINT
    if settings["train_images"] is not None:
        words = {"subset": "these images", "all": "the whole split"}
        source = "the checkpoint" if loaded else words[settings["vocabulary_images"]]
        subset = [f"a subset of the training split; the vocabulary is that of {source}"]
    for line in (data.described, *subset, sizes, *left_out):
        log.info("%s", line)
    if data.unknown > MANY_UNKNOWN:
        text = "%.0f %% of the words of the training captions are unknown: %s"
        log.warning(text, 100 * data.unknown, OF_CHECKPOINT if loaded else IF_MANY)
    return data


def _build(parts: Parts, key: str, **more: Any) -> Any:
    """Build a part, once, and log its name."""
    built = replace(parts[key], partial=False).build(**more)
    log.debug("%s: %s", key, parts[key].target.__name__)  # shown by hydra.verbose=captioning
    return built
