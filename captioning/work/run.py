"""What `captioning.run` does: the parts of a run are built, meet in a trainer, and are trained and tested.

Everything that can be wrong is found before features are computed, and those before training starts.
"""

import logging
import time
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch
from hydra.utils import instantiate
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf
from torch import nn

from captioning.backbones import Backbone
from captioning.config.check import FROM_CHECKPOINT, data_settings, model_settings, optimizer_settings
from captioning.config.paths import checkpoint_path
from captioning.config.precision import tell_precision
from captioning.config.searches import search_settings
from captioning.config.settings import without_weights
from captioning.data.example import Splits, reference_texts
from captioning.data.module import CaptionData
from captioning.data.photographs import readable
from captioning.data.readers.splits import read
from captioning.data.views import RandomChange
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError, quoted
from captioning.features.inputs import cached_bytes, inputs_of, to_unit_scale
from captioning.features.own import check_features
from captioning.metrics import Scorer
from captioning.models import Recurrent
from captioning.progress import duration
from captioning.report.summary import print_summary
from captioning.runs.checkpoint import read as read_checkpoint
from captioning.runs.debug import few
from captioning.runs.initial import InitialWeights
from captioning.runs.record import digests
from captioning.runs.recorded_run import RecordedRun
from captioning.training.module import CaptioningModule
from captioning.training.objectives import Objective, TrainingData
from captioning.training.selection import select_width, use_width

say = rank_zero_only(logging.getLogger(__name__).info)
# Lightning's own logger, as its import has left it, tells of devices, files loaded and products; its warnings stay.
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


def train(config: DictConfig) -> float | None:
    """Trains and tests as `config` says; returns the best validation score, for sweeps."""
    L.seed_everything(config.seed, workers=True, verbose=False)

    initial = None if config.init_from is None else InitialWeights(checkpoint_path(config.init_from))
    backbone = build_backbone(config, initial)
    splits = build_splits(config, backbone)
    run = RecordedRun(config, digests(config, splits, backbone, initial))
    if not run.finished(config):
        tell_precision(config.trainer, run.precision)
        module = build_module(config, splits, backbone, initial)
        data = build_data(config, few(config, splits), module)
        with run.open(config):
            if not run.finished(config):
                trainer = build_trainer(config, run.precision)
                fit(trainer, module, data, run.resume_point(module.state_dict()))
                result = select(config, trainer, module, data, run.result)
                run.end(result)  # before the test: should that fail, it alone comes again
                if config.test:
                    trainer.test(module, data, verbose=False)
    if config.test:
        rank_zero_only(print_summary)(run.folder)
    assert run.result is not None
    return run.result["best"]


def fit(trainer: L.Trainer, module: CaptioningModule, data: CaptionData, point: Path | None) -> None:
    """Trains, from the checkpoint `point` on where there is one.

    Raises:
        CaptioningError: the checkpoint does not hold what training goes on from.
    """
    try:
        trainer.fit(module, data, ckpt_path=point)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if point is None or module.training_has_begun:
            raise
        raise CaptioningError(f"checkpoint={point} is not one that training can go on from: {quoted(error)}") from error


def select(
    config: DictConfig,
    trainer: L.Trainer,
    module: CaptioningModule,
    data: CaptionData,
    earlier: dict[str, Any] | None,
) -> dict[str, Any]:
    """Takes the best weights, and of several widths of the beam the best.

    Args:
        config: of the run.
        trainer: that has trained.
        module: takes both.
        data: of the run.
        earlier: what this gave for a trial that is tested now; None: nothing was chosen yet.

    Returns:
        `best`, the validation score of what is to be tested, or None without validation; `widths`, that of each width.
    """
    score = trainer.checkpoint_callback.best_model_score  # type: ignore[union-attr]
    widths = config.decoding.get("select")
    if widths or config.test:
        load_best(module, trainer)
    if earlier is not None:
        if widths:
            by_score = {score: int(each) for each, score in reversed(earlier["widths"].items())}  # of equals the first
            use_width(module, by_score[earlier["best"]])
        return earlier
    if not widths:
        return {"best": None if score is None else float(score)}
    say("choosing the beam width on validation: %s", ", ".join(map(str, widths)))
    scores = select_width(trainer, module, data, widths)
    width = module.config["decoding"]["width"]
    tried = ", ".join(f"{each}: {value:.1f}" for each, value in scores.items())
    say("beam width %d has the best %s (%s)", width, config.callbacks.checkpoint.monitor, tried)
    return {"best": scores[width], "widths": scores}


def build_backbone(config: DictConfig, initial: InitialWeights | None = None) -> Backbone:
    """The backbone, with the weights of `initial` where a run begins from that, and no others read."""
    if initial is None:
        found: Backbone = instantiate(config.backbone)
        return found
    settings: Any = OmegaConf.to_container(config, resolve=True)
    initial.check_architecture(settings)
    found = instantiate(without_weights(settings["backbone"]))
    initial.fill("backbone", found)
    return found


def build_splits(config: DictConfig, backbone: Backbone) -> Splits:
    """The examples, without those whose photographs cannot be read where `data.skip_broken` says so.

    Features are computed from every photograph before training anyway; where images flow, they are tried here, and
    features of your own are looked for.
    """
    splits = read(instantiate(config.data.reader), backbone.reads_photographs)
    if backbone.trainable or (config.data.skip_broken and backbone.reads_photographs):
        splits = readable(splits, backbone.transform, Path(config.cache) / "photographs", config.data.skip_broken)
    check_features(splits, backbone)
    return splits


def build_module(
    config: DictConfig, splits: Splits, backbone: Backbone, initial: InitialWeights | None = None
) -> CaptioningModule:
    """Model, objective, search and scorers, meeting in the Lightning module."""
    vocabulary = build_vocabulary(config, splits, initial)
    model = instantiate(model_settings(config), vocab_size=len(vocabulary), **backbone.sizes)
    task = TrainingData(splits["train"], vocabulary)
    if initial is not None:
        initial.fill("model", model)
    elif isinstance(model, Recurrent) and model.head.bias == "frequencies":
        model.head.begin(task.counts())
    settings: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    objective: Objective = instantiate(config.objective)
    objective.prepare(task, model)
    return CaptioningModule(
        backbone=backbone,
        model=model,
        objective=objective,
        search=instantiate(search_settings(settings["decoding"], vocabulary), _convert_="all"),
        scorers={
            split: Scorer(reference_texts(splits[split]), list(config.metrics[split]), config.metrics.timeout)
            for split in ("val", "test")
        },
        vocabulary=vocabulary,
        optimizer=instantiate(optimizer_settings(config)),
        backbone_lr=config.optimizer.get("backbone_lr"),
        schedule=instantiate(config.schedule),
        config=settings,
    )


def build_vocabulary(config: DictConfig, splits: Splits, initial: InitialWeights | None) -> Vocabulary:
    """The words of the training captions, which are those of `initial`, or its words whatever the captions say."""
    if initial is not None and config.data.vocabulary == FROM_CHECKPOINT:
        return initial.vocabulary
    vocabulary = Vocabulary.from_captions(
        (reference.words for example in splits["train"] for reference in example.references), **config.data.vocabulary
    )
    if initial is not None:
        initial.check_vocabulary(vocabulary)
    return vocabulary


def build_data(config: DictConfig, splits: Splits, module: CaptioningModule) -> CaptionData:
    """The data module, its inputs as the backbone needs them: photographs, or features brought to unit scale."""
    backbone, cache, more = module.backbone, Path(config.cache), range(1, config.data.views)
    if torch.cuda.is_available():
        backbone.cuda()  # for features; the trainer moves it again
    images = sum(map(len, splits.values()))
    if size := cached_bytes(images + len(more) * len(splits["train"]), backbone):
        seen = f", {len(splits['train']):,} of them in {config.data.views} views" if more else ""
        say("features: %s images%s, %.2f GB in %s", f"{images:,}", seen, size / 1e9, cache / "features")
    begun = time.monotonic()
    inputs = {name: inputs_of(examples, backbone, cache, name) for name, examples in splits.items()}
    seconds = (time.monotonic() - begun) * len(more) * len(splits["train"]) / images
    if seconds > 1:  # else these were in the cache
        say("views: about %s, where they are not in the cache", duration(seconds))
    if config.init_from is None:  # else the model knows them as they were scaled
        to_unit_scale(backbone, inputs["train"])
    changes: RandomChange = instantiate(config.data.view)
    views = [
        inputs_of(
            splits["train"], backbone.viewed(changes.view(k)), cache, f"train, view {k + 1} of {config.data.views}"
        )
        for k in more
    ]
    data = CaptionData(splits, inputs, module.vocabulary, views=views, **data_settings(config))
    say("%s", describe(data, module))
    return data


def build_trainer(config: DictConfig, precision: str) -> L.Trainer:
    """The trainer of that precision with its callbacks and loggers; those set to null are left out."""
    callbacks, loggers = (
        [instantiate(part) for part in (group or {}).values() if part is not None]
        for group in (config.callbacks, config.logger)
    )
    bar = any(isinstance(callback, ProgressBar) for callback in callbacks)  # or Lightning would add its own
    trainer: L.Trainer = instantiate(
        config.trainer,
        precision=precision,
        logger=loggers,
        callbacks=callbacks,
        default_root_dir=config.folder,
        enable_progress_bar=bar,
    )
    return trainer


def load_best(module: CaptioningModule, trainer: L.Trainer) -> None:
    """The weights of the best checkpoint, and only these.

    `trainer.test(ckpt_path="best")` would also restore callbacks: the stopwatch to the time of that checkpoint, and in
    place of averaged weights those from which training goes on.
    """
    path = trainer.strategy.broadcast(trainer.checkpoint_callback.best_model_path)  # type: ignore[union-attr]
    if not path:
        raise CaptioningError("no validation took place, so there is no best checkpoint to test: set test=false")
    module.load_state_dict(read_checkpoint(Path(path))["state_dict"])


def describe(data: CaptionData, module: CaptioningModule) -> str:
    """One line on data, one on size."""
    sizes = ", ".join(f"{name} {len(examples)}" for name, examples in data.splits.items())
    dropped = data.datasets["train"].dropped
    left_out = f" ({dropped} training images left out: every caption is too long)" if dropped else ""
    count = sum(p.numel() for p in cast(nn.Module, module.model).parameters())
    backbone = sum(p.numel() for p in module.backbone.parameters())
    state = "trainable" if module.backbone.trainable else "frozen"
    return (
        f"images: {sizes}{left_out}; vocabulary: {len(module.vocabulary)}\n"
        f"parameters: model {count:,}, backbone {backbone:,} ({state})"
    )
