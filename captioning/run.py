"""Train a captioner and test it: `python -m captioning.run model=spatial_transformer`."""

import logging
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from omegaconf import DictConfig, OmegaConf

from captioning.config.check import (
    DATA,
    FROM_CHECKPOINT,
    SETTINGS,
    apply_debug,
    check,
    given_keys,
    with_checkpoint_files,
)
from captioning.config.command import command, start
from captioning.config.monitors import LOSS, choose_loss
from captioning.config.registry import CONF, build, without_weights
from captioning.download.named import check_checkpoint, checkpoint_path
from captioning.errors import CaptioningError, quoted
from captioning.machine import device_of, has_bfloat16, is_first
from captioning.progress import duration
from captioning.report.tables import print_summary
from captioning.runs.choices import add_choices
from captioning.runs.folder import in_sweep
from captioning.runs.run import RunFolder, identity

if TYPE_CHECKING:  # train imports PyTorch and Lightning, which take seconds, after the first checks
    import lightning as L
    from torch import nn

    from captioning.backbones.base import Backbone
    from captioning.data.example import Example, Splits
    from captioning.data.module import CaptionData
    from captioning.data.views import RandomChange
    from captioning.data.vocabulary import Vocabulary
    from captioning.runs.networks import InitialWeights
    from captioning.training.module import CaptioningModule

T = TypeVar("T")
MANY_UNKNOWN = 0.15  # (D) more show that the words are not what repeats in these captions
IF_MANY = (
    "lower data.vocabulary.min_count, or for a language without blanks set data.language=zh "
    "data.tokens=characters"
)
IF_MANY_OF_CHECKPOINT = (
    "data.vocabulary=checkpoint keeps the words of init_from, and no caption will have others. "
    "Choose a checkpoint of "
    "similar captions, or leave both settings out to train with the words of these"
)

log = logging.getLogger(__name__)


@command(CONF / "config.yaml", SETTINGS)
def main(config: DictConfig) -> float | None:
    """Train and test; return the best validation score, for sweeps."""
    apply_debug(config)
    add_choices(config)  # of the command, before the checkpoint's
    initial = None
    if config.init_from is not None:
        check_checkpoint("init_from", config.init_from)
        from captioning.runs.networks import InitialWeights

        initial = InitialWeights(checkpoint_path(config.init_from))
        initial.complete(config, given_keys())  # what the command leaves open is as there
    if choose_loss(config) and is_first():
        log.info(
            "metrics.val=[] decodes no captions: the best checkpoint is chosen by the loss, %s",
            LOSS,
        )
    return train(config, check(config), initial)


def train(
    config: DictConfig, parts: Mapping[str, Any], initial: "InitialWeights | None" = None
) -> float | None:
    """Compute features, train, choose, and test; an earlier run is resumed where it ended.

    Args:
        config: of the run; it gets its `folder`.
        parts: the same as `check` gives it, from which parts are built.
        initial: weights to begin from.
    """
    import lightning as L

    from captioning.training.selection import select

    logging.getLogger("lightning.pytorch").setLevel(
        logging.WARNING
    )  # else it tells of devices, files and products
    L.seed_everything(config.seed, workers=True, verbose=False)

    if initial is not None:
        initial.check_architecture(parts)
    splits = read_captions(parts)  # before a backbone's weights are downloaded
    backbone = build_backbone(parts, initial)
    splits = check_inputs(parts, splits, backbone)
    monitor_what_moves(config, splits["val"])
    run = RunFolder(
        config, identity(config, splits, backbone, initial), parts["trainer"]["precision"]
    )
    if not run.finished:
        tell_precision(config.trainer, parts["trainer"]["precision"], run.precision)
        module = build_module(config, parts, splits, backbone, initial)
        data = build_data(config, debug_subset(config, splits), module)
        with run.open():
            if not run.finished:
                trainer = build_trainer(config, run.precision)
                fit(trainer, module, data, run.checkpoint())
                widths = config.decoding.get("beam_widths")
                run.finish(
                    select(trainer, module, data, widths, config.test, run.result)
                )  # a test may fail and be repeated
                if config.test:
                    trainer.test(module, data, verbose=False)
    if config.test and is_first():
        print_summary(run.path)
        if not in_sweep():
            print_next(config.runs, run.path, backbone)
    assert run.result is not None
    return run.result["best"]


def print_next(runs: str, folder: Path, backbone: "Backbone") -> None:
    """Print the commands that a user probably wants after a run."""
    print("\nnext", f"captioning report {shlex.quote(f'runs={runs}')}", sep="\n")
    if backbone.reads_photographs:
        print(
            "captioning predict PHOTOGRAPH "
            f"{shlex.quote(f'checkpoint={folder}/checkpoints/best.ckpt')}"
        )


def tell_precision(trainer: DictConfig, fitting: str, used: str) -> None:
    """Log the precision in use, and warn of slow bfloat16; `used` may come from another machine."""
    device = device_of(trainer.accelerator)
    fast, kind = has_bfloat16(device), "CPU" if device.type == "cpu" else "GPU"
    hardware = f"this {kind} is {'faster' if fast else 'slower'} in bfloat16"
    if is_first() and used.startswith("bf16") and not fast:
        log.warning(
            "precision: %s; %s than in 32-true: a new run takes trainer.precision=auto",
            used,
            hardware,
        )
    if is_first() and trainer.precision == "auto":
        since = "from trainer.precision=auto" if used == fitting else "with which this run began"
        log.info("precision: %s, %s; %s", used, since, hardware)


def build_backbone(
    settings: Mapping[str, Any], initial: "InitialWeights | None" = None
) -> "Backbone":
    """The backbone with its weights, which are those of `initial` if there is one."""
    if initial is None:
        backbone: Backbone = build("backbone", settings["backbone"], None)
        return backbone
    with initial.limit("backbone"):
        backbone = build("backbone", without_weights(settings["backbone"]), None)
    initial.fill("backbone", backbone)
    return backbone


def read_captions(settings: Mapping[str, Any]) -> "Splits":
    """The examples; photographs must be on disk if the backbone reads them, or are left out if
    `data.skip_broken`.
    """
    from captioning.data.readers.reading import read
    from captioning.data.words import Language
    from captioning.runs.data_set import log_skipped

    data = settings["data"]
    skipped: list[Exception] | None = [] if data["skip_broken"] else None
    reader = build("data.reader", data["reader"], None)
    splits = read(reader, settings.get("reads_photographs", False), Language.of(data), skipped)
    log_skipped(skipped or ())
    return splits


def check_inputs(settings: Mapping[str, Any], splits: "Splits", backbone: "Backbone") -> "Splits":
    """The examples without unreadable photographs if `data.skip_broken`; precomputed features must
    exist.
    """
    from captioning.data.photographs import readable

    data = settings["data"]
    # a frozen backbone computes features of every photograph before training anyway
    if backbone.reads_photographs and (backbone.trainable or data["skip_broken"]):
        splits = readable(
            splits, backbone.transform, Path(settings["cache"]) / "photographs", data["skip_broken"]
        )
    backbone.prepare(splits)
    return splits


def monitor_what_moves(config: DictConfig, examples: "Sequence[Example]") -> None:
    """Choose the checkpoint by the loss where CIDEr would, and is 0 for any captions of these
    validated images.
    """
    from captioning.metrics.statistics import is_constant

    size, limit = config.data.eval_batch_size, config.trainer.limit_val_batches
    if limit is not None:
        batches = limit if isinstance(limit, int) else int(limit * math.ceil(len(examples) / size))
        examples = examples[: batches * size]
    captions = [[reference.words for reference in example.references] for example in examples]
    if not is_constant(captions) or not choose_loss(config, ["val/CIDEr"]):
        return
    images = f"{len(examples):,} validation image{'s' if len(examples) > 1 else ''}"
    reason = f"CIDEr is 0 for any captions of {images} with the same references"
    if config.decoding.get("beam_widths"):
        config.decoding.beam_widths = None
        reason += ", so decoding.beam_widths has nothing to compare"
    if is_first():
        log.warning("%s: the best checkpoint is chosen by the loss, %s", reason, LOSS)


def debug_subset(
    config: DictConfig, splits: Mapping[str, Sequence[T]]
) -> Mapping[str, Sequence[T]]:
    """Cut each split to two batches with `debug=true`, so that no unused features are computed."""
    if not config.debug:
        return splits
    size = 2 * max(config.data.batch_size, config.data.eval_batch_size)
    return {name: examples[:size] for name, examples in splits.items()}


def build_module(
    config: DictConfig,
    parts: Mapping[str, Any],
    splits: "Splits",
    backbone: "Backbone",
    initial: "InitialWeights | None" = None,
) -> "CaptioningModule":
    """Model, objective, search and scorers in their Lightning module."""
    from captioning.data.example import reference_texts
    from captioning.metrics import ScoredImage, Scorer
    from captioning.models import Recurrent
    from captioning.training.module import CaptioningModule
    from captioning.training.objectives import TrainingData

    vocabulary = build_vocabulary(config, splits, initial)
    with nullcontext() if initial is None else initial.limit("model"):
        model = build("model", parts["model"], None, vocab_size=len(vocabulary), **backbone.sizes)
    task = TrainingData(splits["train"], vocabulary)
    if initial is not None:
        initial.fill("model", model)
    elif isinstance(model, Recurrent) and model.head.bias == "frequencies":
        model.head.init_bias_from_counts(task.counts())
    settings: Any = OmegaConf.to_container(config, resolve=True)
    timeout, language = config.metrics.timeout, vocabulary.language
    objective = build("objective", parts["objective"], None)
    objective.prepare(task, model)
    return CaptioningModule(
        backbone=backbone,
        model=model,
        objective=objective,
        search=build("decoding", vocabulary.with_ids(parts["decoding"]), None),
        scorers={
            split: Scorer(
                reference_texts(splits[split]),
                [*settings["metrics"][split], *config.data.metrics],
                timeout,
                language,
                [ScoredImage(example.image_id, example.path) for example in splits[split]],
            )
            for split in ("val", "test")
            if settings["metrics"][split]
        },
        vocabulary=vocabulary,
        optimizer=build("optimizer", parts["optimizer"], None),
        backbone_lr=config.optimizer.get("backbone_lr"),
        schedule=build("schedule", parts["schedule"], None),
        config=settings,
    )


def build_vocabulary(
    config: DictConfig, splits: "Splits", initial: "InitialWeights | None"
) -> "Vocabulary":
    """The words of the training captions; with `data.vocabulary=checkpoint`, those of `initial`."""
    from captioning.data.vocabulary import Vocabulary
    from captioning.data.words import Language

    language = Language.of(config.data)
    if initial is not None and config.data.vocabulary == FROM_CHECKPOINT:
        return Vocabulary(initial.vocabulary.words, language)
    captions = [reference.words for example in splits["train"] for reference in example.references]
    vocabulary = Vocabulary.from_captions(captions, **config.data.vocabulary)
    if initial is not None:
        initial.check_vocabulary(vocabulary)
    return Vocabulary(vocabulary.words, language)


def build_data(config: DictConfig, splits: "Splits", module: "CaptioningModule") -> "CaptionData":
    """The data module with what the backbone needs: photographs, or cached features at unit
    scale.
    """
    import torch

    from captioning.data.module import CaptionData, check_lengths
    from captioning.features.build import FeatureStore

    check_lengths(splits["train"], config.data.max_words)  # before features are computed
    backbone, cache, views = module.backbone, Path(config.cache), range(1, config.data.views)
    if torch.cuda.is_available():
        backbone.cuda()  # for features; the trainer moves it again
    images = sum(map(len, splits.values()))
    if size := backbone.cached_bytes(images + len(views) * len(splits["train"])):
        viewed = f", {len(splits['train']):,} of them in {config.data.views} views" if views else ""
        log_info(
            "features: %s images%s, %.2f GB in %s",
            f"{images:,}",
            viewed,
            size / 1e9,
            cache / "features",
        )
    store, begun = FeatureStore(cache), time.monotonic()
    inputs = {
        name: backbone.open_inputs(examples, store, name) for name, examples in splits.items()
    }
    seconds = (time.monotonic() - begun) * len(views) * len(splits["train"]) / images
    if seconds > 1:  # else these were in the cache
        log_info("views: about %s, where they are not in the cache", duration(seconds))
    if config.init_from is None:  # else the model knows them as they were scaled
        inputs["train"].fit_scale(backbone)
    changes: RandomChange = build(
        "data.view", OmegaConf.to_container(config.data.view, resolve=True), None
    )
    names = {k: f"train, view {k + 1} of {config.data.views}" for k in views}
    more = [
        backbone.viewed(changes.view(k)).open_inputs(splits["train"], store, name)
        for k, name in names.items()
    ]
    settings = {name: config.data[name] for name in DATA}
    data = CaptionData(splits, inputs, module.vocabulary, views=more, seed=config.seed, **settings)
    log_info("%s", describe(data, module))
    if data.unknown > MANY_UNKNOWN and is_first():
        advice = IF_MANY_OF_CHECKPOINT if config.data.vocabulary == FROM_CHECKPOINT else IF_MANY
        log.warning(
            "%.0f %% of the words of the training captions are unknown: %s",
            100 * data.unknown,
            advice,
        )
    return data


def describe(data: "CaptionData", module: "CaptioningModule") -> str:
    """One line about the data, one about sizes, and one about scores that are left out, if any."""
    from captioning.metrics.table import unsupported_metrics

    count = sum(p.numel() for p in cast("nn.Module", module.model).parameters())
    backbone = sum(p.numel() for p in module.backbone.parameters())
    state = "trainable" if module.backbone.trainable else "frozen"
    sizes = f"parameters: model {count:,}, backbone {backbone:,} ({state})"
    metrics = [*module.config["metrics"]["val"], *module.config["metrics"]["test"]]
    left_out = unsupported_metrics(metrics, module.vocabulary.language.code)
    return "\n".join([data.described, sizes, *left_out])


def build_trainer(config: DictConfig, precision: str) -> "L.Trainer":
    """The trainer with its callbacks and loggers, without those set to null."""
    from lightning.pytorch.callbacks import ProgressBar

    settings: Any = OmegaConf.to_container(config, resolve=True)
    callbacks, loggers = (
        [
            build(f"{group}.{name}", part, None)
            for name, part in (settings.get(group) or {}).items()
            if part is not None
        ]
        for group in ("callbacks", "logger")
    )
    own = with_checkpoint_files(settings["trainer"]) | {
        "precision": precision,
        "default_root_dir": config.folder,
        # or Lightning would add its own bar
        "enable_progress_bar": any(isinstance(callback, ProgressBar) for callback in callbacks),
    }
    trainer: L.Trainer = build("trainer", own, None, logger=loggers, callbacks=callbacks)
    return trainer


def fit(
    trainer: "L.Trainer", module: "CaptioningModule", data: "CaptionData", checkpoint: Path | None
) -> None:
    """Train, or resume from `checkpoint`; errors before the first step are the settings' or the
    file's.
    """
    try:
        trainer.fit(module, data, ckpt_path=checkpoint)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        if module.training_has_begun or not (checkpoint or isinstance(error, ValueError)):
            raise
        begin = "begin" if checkpoint is None else f"resume from checkpoint={checkpoint}"
        raise CaptioningError(f"training cannot {begin}: {quoted(error)}") from error


def log_info(message: str, *values: object) -> None:
    """Log on rank 0."""
    if is_first():
        log.info(message, *values)


if __name__ == "__main__":
    start(main)
