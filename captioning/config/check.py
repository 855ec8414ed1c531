"""Validate the configuration of a run before any data are read.

Missing settings, files and combinations are refused at once, wrong values after PyTorch's import: by the types of the
parameters that they are given to, and by building every part once on PyTorch's device for tensors without content,
which takes neither memory nor a download.
"""

import copy
import logging
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from annotated_types import Ge
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import MISSING, DictConfig, OmegaConf

from captioning.config.paths import check_checkpoint, check_folder
from captioning.config.registry import TITLE, check_arguments, check_loadable, check_parts
from captioning.config.settings import check_table, each_setting, without_weights
from captioning.config.types import Count, Name, NotNegative, Part, PathText, Positive, Seconds, Seed, check_value
from captioning.errors import CaptioningError, quoted
from captioning.metrics.java import find_java
from captioning.metrics.scorer import Metrics, scores_of
from captioning.tokens import NAMES

if TYPE_CHECKING:
    from torch import nn

FROM_CHECKPOINT: Final = "checkpoint"
"""In place of a vocabulary's settings: its words are those of `init_from`."""
SETTINGS: Mapping[str, Any] = {
    "name": Name,
    "seed": Seed,
    "resume": bool | None,
    "init_from": PathText | None,
    "test": bool,
    "runs": PathText,
    "cache": PathText,
    "metrics.val": Metrics,
    "metrics.test": Metrics,
    "metrics.timeout": Seconds,
    "data.reader": Part,
    "data.vocabulary": dict[str, Any] | Literal[FROM_CHECKPOINT],
    "data.views": Count,
    "data.view": Part,
    "data.skip_broken": bool,
    **dict.fromkeys(("backbone", "model", "objective", "decoding", "optimizer", "schedule", "trainer"), Part),
    # training calls these itself
    **dict.fromkeys(("decoding._partial_", "optimizer._partial_", "schedule._partial_"), Literal[True]),
    # what Lightning takes and fails with in the middle of a run
    "trainer.accumulate_grad_batches": Annotated[int, Ge(1)],
    "trainer.check_val_every_n_epoch": Annotated[int, Ge(1)] | None,
    "trainer.log_every_n_steps": Annotated[int, Ge(1)] | None,
    "trainer.gradient_clip_val": NotNegative | None,
    "trainer.max_steps": Annotated[int, Ge(1)] | Literal[-1],
    "trainer.val_check_interval": Positive | str | dict[str, int] | None,
    "optimizer.backbone_lr": Positive | None,
    "callbacks.checkpoint": Part,  # a run keeps its best
    "callbacks": dict[str, Part | None],
    "logger": dict[str, Part | None] | None,
}
"""Settings that are no argument of a part, and bounds that Lightning misses."""
OF_CALLBACKS: Mapping[str, Any] = {
    "patience": Annotated[int, Ge(0)],  # of early stopping, else an end without a word or a failure
    "save_top_k": Annotated[int, Ge(1)] | Literal[-1],
}
DATA = ("batch_size", "eval_batch_size", "captions_per_image", "max_words", "num_workers")


def check(config: DictConfig) -> None:
    """Refuse a configuration of a run that cannot work; the error names the setting and what to change."""
    config = config.copy()
    OmegaConf.update(config, "folder", "folder")  # which has no name yet
    _check_given(config)
    _check_combinations(config)
    _check_processes(config)
    _check_validation(config)
    find_java()  # which scores need, after hours of training
    _check_values(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come when the parts are built to be used
        _build(config)


def data_settings(config: DictConfig) -> dict[str, Any]:
    """The arguments of the data module that are plain settings."""
    return {name: config.data[name] for name in DATA} | {"seed": config.seed}


def optimizer_settings(config: DictConfig) -> DictConfig:
    """The settings of the optimiser itself, without `backbone_lr`."""
    return _without("backbone_lr", config.optimizer)


def model_settings(config: DictConfig) -> DictConfig:
    """The settings of the model itself, without `title`."""
    return _without(TITLE, config.model)


def _without(key: str, settings: DictConfig) -> DictConfig:
    settings = copy.deepcopy(settings)
    OmegaConf.set_struct(settings, False)
    settings.pop(key, None)
    return settings


def built(settings: DictConfig | dict[str, Any], **given: Any) -> Any:
    """Build a part of one's own configuration; lists and groups in it become plain ones."""
    return instantiate(settings, _convert_="all", **given)


def _check_given(config: DictConfig) -> None:
    """Refuse missing settings, files and folders, and wrong values of settings that are no argument of a part."""
    for key, value in each_setting(OmegaConf.to_container(config, resolve=False)):
        if value == MISSING:
            raise CaptioningError(f"{key} is not set and has no default: add {key}=VALUE")
    if "root" in config.data:
        check_value("data.root", config.data.root, PathText)
        check_folder("data.root", config.data.root)
    check_table(SETTINGS, config)
    if config.init_from is not None:
        check_checkpoint("init_from", config.init_from)
    elif config.data.vocabulary == FROM_CHECKPOINT:
        raise CaptioningError("data.vocabulary=checkpoint takes the words of init_from=CHECKPOINT, which is not set")


def _check_combinations(config: DictConfig) -> None:
    if config.test and config.callbacks.get("results") is None:
        raise CaptioningError("callbacks.results writes the test's captions and scores: without it set test=false")
    if config.callbacks.get("learning_rate") is not None and not any((config.logger or {}).values()):
        raise CaptioningError("callbacks.learning_rate needs a logger: keep logger.csv, or set it to null too")
    limit, words = config.model.get("max_tokens"), config.data.max_words
    if isinstance(limit, int) and isinstance(words, int) and words + 1 > limit:
        raise CaptioningError(
            f"data.max_words={words} makes inputs of {words + 1} tokens (BOS included), "
            f"and model.max_tokens={limit} reads no more than {limit}: set model.max_tokens={words + 1} "
            f"or data.max_words={limit - 1}"
        )
    rate, backbone = config.optimizer.get("backbone_lr"), OmegaConf.to_container(config.backbone, resolve=True)
    trained = [value for key, value in each_setting(backbone) if key.rpartition(".")[2] == "trainable"]  # of each
    if rate is not None and trained and not any(trained):
        raise CaptioningError(
            f"optimizer.backbone_lr={quoted(rate)} needs a backbone that is trained: set backbone.trainable=true, "
            "or optimizer.backbone_lr=null"
        )


def _check_processes(config: DictConfig) -> None:
    launcher = str(HydraConfig.get().launcher._target_)
    if "joblib" in launcher and config.trainer.devices != 1:
        raise CaptioningError(
            f"hydra/launcher=processes gives each job one process, and trainer.devices={config.trainer.devices} needs "
            "others: set trainer.devices=1, or leave the launcher out, so that the jobs run one after the other"
        )
    started = int(os.environ.get("WORLD_SIZE", 1))
    if started > 1 and config.trainer.devices == 1 and config.trainer.get("num_nodes", 1) == 1:
        raise CaptioningError(
            f"{started} processes were started, and with trainer.devices=1 each would train on its own: "
            "set trainer=ddp and trainer.devices to the number of processes per node"
        )


def _check_validation(config: DictConfig) -> None:
    chosen = list(config.metrics.val)
    known = [f"val/{name}" for name in scores_of(chosen)]
    for name, callback in config.callbacks.items():
        for key in () if callback is None else OF_CALLBACKS.keys() & callback.keys():
            check_value(f"callbacks.{name}.{key}", callback[key], OF_CALLBACKS[key])
        monitor = None if callback is None else callback.get("monitor")
        if monitor is not None and monitor not in known:
            raise CaptioningError(
                f"callbacks.{name}.monitor={quoted(monitor)} is not computed with metrics.val={chosen}; "
                f"choose one of {', '.join(known)}, or add its metric"
            )
    select = config.decoding.get("select") is not None
    if not (config.test or select):
        return
    without = "test=false" + (" and decoding.select=null" if select else "")
    every, epochs = config.trainer.check_val_every_n_epoch, config.trainer.max_epochs
    if isinstance(epochs, int) and isinstance(every, int | None) and 0 <= epochs < (every or 1):
        raise CaptioningError(
            f"trainer.max_epochs={epochs} ends before the first validation (trainer.check_val_every_n_epoch={every}), "
            f"so there is no best checkpoint to test: change one of them or set {without}"
        )
    for name in ("limit_train_batches", "limit_val_batches", "limit_test_batches"):
        if config.trainer.get(name) == 0:
            raise CaptioningError(f"with trainer.{name}=0 there is no best checkpoint to test: set {without}")


def _check_values(config: DictConfig) -> None:
    from captioning.config.precision import (  # here and below, because PyTorch takes seconds
        check_precision,
        precision_of,
    )
    from captioning.config.searches import check_decoding
    from captioning.data.module import CaptionData
    from captioning.data.vocabulary import Vocabulary

    check_arguments("data", CaptionData, data_settings(config))
    if config.data.vocabulary != FROM_CHECKPOINT:
        check_arguments("data.vocabulary", Vocabulary.from_captions, config.data.vocabulary)
    settings: Any = OmegaConf.to_container(config, resolve=True)
    for place in ("backbone", "model", "decoding"):
        check_loadable(place, settings[place])
    check_loadable("data.reader", settings["data"]["reader"])
    check_decoding(settings.pop("decoding"), config.model.get("max_tokens"))
    settings["optimizer"].pop("backbone_lr", None)
    check_precision(config)
    settings["trainer"]["precision"] = precision_of(config.trainer)
    check_parts("", settings)


def _build(config: DictConfig) -> None:
    import torch
    from torch import nn

    from captioning.config.precision import precision_of

    # Lightning's own logger, as its import has left it, tells of devices, files and products; its warnings stay
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    built(config.data.reader)
    objective = built(config.objective)
    model = _networks(config) or get_object(config.model._target_)
    if objective.stochastic and not getattr(model, "stochastic", False):
        raise CaptioningError(
            f"objective {config.objective._target_} learns from sampled attention, and model "
            f"{config.model._target_} samples none: use model=sat_hard or model=sat_soft, or "
            "objective=cross_entropy"
        )
    if objective.needs_attention and not getattr(model, "attends", True):
        raise CaptioningError(
            f"objective {config.objective._target_} regularises attention, and model {config.model._target_} has "
            "none: set objective.doubly_stochastic=0, or give it attention (model/score=mlp for a recurrent one)"
        )
    if objective.needs_initial and config.init_from is None:
        raise CaptioningError(
            "objective.kl_weight holds the model near the one that training begins from, and that has random "
            "weights: set init_from=CHECKPOINT, or objective.kl_weight=0"
        )
    optimizer = _made("optimizer", built(optimizer_settings(config)), [nn.Parameter(torch.zeros(1))])
    _made("schedule", built(config.schedule), optimizer, 1)
    callbacks = [built(part) for part in config.callbacks.values() if part is not None]
    built(config.trainer, callbacks=callbacks, logger=False, precision=precision_of(config.trainer))


def _made(key: str, partial: Any, *arguments: Any) -> Any:
    """Call a partial part, as Hydra builds the others."""
    try:
        return partial(*arguments)
    except Exception as error:  # a user's part may raise anything
        raise InstantiationException(f"{key} refuses its settings\nfull_key: {key}") from error


def _networks(config: DictConfig) -> "nn.Module | None":
    """The model behind its backbone; None where one cannot be built without content, which is no fault."""
    import torch

    described = config.copy()
    described.backbone = without_weights(OmegaConf.to_container(config.backbone, resolve=True))
    changes = built(config.data.view)
    try:
        with torch.device("meta"):
            backbone = built(described.backbone)
            if config.data.views > 1:
                backbone.viewed(changes.view(1))
            model: nn.Module = built(model_settings(described), vocab_size=len(NAMES) + 1, **backbone.sizes)
            return model
    except InstantiationException as refusal:
        if isinstance(refusal.__cause__, RuntimeError):
            return None
        raise
