"""Validate the configuration of a run before any data are read."""

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, MinLen
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from captioning.config.arguments import parse_overrides
from captioning.config.monitors import is_score, monitor_rules
from captioning.config.registry import (
    CONF,
    build,
    each_part,
    judge,
    locate,
    modules_of,
    of_parts,
    without_weights,
)
from captioning.config.settings import check_folder, check_table, refuse
from captioning.config.types import (
    Count,
    Name,
    NotNegative,
    Part,
    PathText,
    Positive,
    Seconds,
    Seed,
    check_value,
)
from captioning.errors import INSTEAD, CaptioningError, no_setting
from captioning.machine import device_of, has_bfloat16
from captioning.metrics.table import MetricName, MetricNames
from captioning.tokens import FROM_CHECKPOINT, NAMES

OR_ENDLESS = Annotated[int, Ge(1)] | Literal[-1]
SETTINGS: Mapping[str, Any] = {
    "name": Name,
    "seed": Seed,
    "init_from": PathText | None,
    "choices": dict[str, Any],
    "resume": bool | None,
    **dict.fromkeys(("test", "data.skip_broken"), bool),
    **dict.fromkeys(("runs", "cache"), PathText),
    "metrics.val": Sequence[MetricName],
    "metrics.test": MetricNames,
    "data.metrics": Sequence[MetricName],
    "metrics.timeout": Seconds,
    **dict.fromkeys(
        ("backbone", "model", "objective", "decoding", "optimizer", "schedule", "trainer"), Part
    ),
    **dict.fromkeys(("data.reader", "data.view", "callbacks.checkpoint"), Part),
    **dict.fromkeys(
        ("decoding._partial_", "optimizer._partial_", "schedule._partial_"), Literal[True]
    ),
    "data.vocabulary": dict[str, Any] | Literal[FROM_CHECKPOINT],
    "data.views": Count,
    "decoding.beam_widths": Annotated[list[Count], MinLen(1)] | None,
    "optimizer.backbone_lr": Positive | None,
    "callbacks": dict[str, Part | None],
    "logger": dict[str, Part | None] | None,
    # what Lightning takes and fails with in the middle of a run
    **dict.fromkeys(
        ("trainer.check_val_every_n_epoch", "trainer.log_every_n_steps"),
        Annotated[int, Ge(1)] | None,
    ),
    "trainer.accelerator": str,
    "trainer.max_epochs": Annotated[int, Ge(-1)] | None,
    "trainer.max_steps": OR_ENDLESS,
    "trainer.accumulate_grad_batches": Annotated[int, Ge(1)],
    "trainer.gradient_clip_val": NotNegative | None,
    "callbacks.checkpoint.save_top_k": OR_ENDLESS | None,
    "callbacks.early_stopping.patience": Annotated[int, Ge(0)] | None,
    "trainer.val_check_interval": Positive | str | dict[str, int] | None,
}
"""Settings that are no argument of a part, and bounds that Lightning misses."""
CHECKPOINT_FILES = {"_target_": "captioning.training.callbacks.resume.CheckpointFiles"}
DATA = (
    "batch_size",
    "eval_batch_size",
    "captions_per_image",
    "max_words",
    "num_workers",
)  # of its module


def apply_debug(config: DictConfig) -> None:
    """With `debug=true`, apply `conf/debug.yaml` where the command line does not set something
    else.
    """
    check_value("debug", config.debug, bool)
    if config.debug:
        given = given_keys()
        with open_dict(config):
            for key, value in OmegaConf.load(CONF / "debug.yaml").items():
                if key not in given:
                    OmegaConf.update(config, str(key), value)


def given_keys() -> list[str]:
    """Settings and groups that the command line sets."""
    return [each.key_or_group for each in parse_overrides(HydraConfig.get().overrides.task)]


def check(config: DictConfig) -> dict[str, Any]:
    """Refuse a configuration that cannot work; return the settings of parts, `trainer.precision`
    this machine's.
    """
    config = config.copy()
    OmegaConf.update(config, "folder", "folder")  # which has no name yet
    OmegaConf.to_container(config, throw_on_missing=True)
    check_table(SETTINGS, config)
    if "root" in config.data:
        check_folder("data.root", config.data.root)
    settings = of_parts(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    with warnings.catch_warnings(action="ignore"):  # they come when the parts are built to be used
        _dry_build(config, settings)
    return settings


def _dry_build(config: DictConfig, settings: dict[str, Any]) -> None:
    import torch  # here and below, because PyTorch takes seconds

    from captioning.config.searches import build_search, with_words
    from captioning.data.module import CaptionData
    from captioning.data.vocabulary import Vocabulary
    from captioning.data.words import Language

    data, decoding, trainer = settings["data"], settings["decoding"], settings["trainer"]
    judge(
        "data", CaptionData, {"seed": settings["seed"], **{name: data.get(name) for name in DATA}}
    )
    if data["vocabulary"] != FROM_CHECKPOINT:
        judge("data.vocabulary", Vocabulary.from_captions, data["vocabulary"])
    build("data.reader", data["reader"], modules_of(data["reader"]))
    Language.of(data).split("a word")
    objective = build("objective", settings["objective"], None)
    model = _networks(settings) or locate("model", settings["model"]["_target_"], None)
    for width in config.decoding.get("beam_widths") or [None]:
        search = decoding if width is None else {**decoding, "width": width}
        build_search(search, None, settings["model"].get("max_tokens"), modules_of(decoding))
    called = {"_partial_": False}
    optimizer = build(
        "optimizer", {**settings["optimizer"], **called}, None, [torch.nn.Parameter(torch.zeros(1))]
    )
    build("schedule", {**settings["schedule"], **called}, None, optimizer, 1)
    callbacks = [
        build(f"callbacks.{name}", part, None)
        for name, part in settings["callbacks"].items()
        if part
    ]
    for name, part in (settings.get("logger") or {}).items():
        if part:
            build(
                f"logger.{name}", {**part, "_partial_": True}, None
            )  # they begin files and connections

    device = device_of(trainer["accelerator"])
    refuse(_rules(config, objective, model, device))
    if trainer["precision"] == "auto":
        trainer["precision"] = "bf16-mixed" if has_bfloat16(device) else "32-true"
    # Lightning's own logger, as its import has left it, tells of devices, files and products; its
    # warnings stay
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    build("trainer", with_checkpoint_files(trainer), None, callbacks=callbacks, logger=False)
    settings["decoding"] = with_words(decoding)


def with_checkpoint_files(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a trainer with our plugin beside its own: others' checkpoints could not be
    read again.
    """
    given = trainer.get("plugins") or []
    plugins = given if isinstance(given, list) else [given]
    return {
        **trainer,
        "plugins": [*(each for each in plugins if each != CHECKPOINT_FILES), CHECKPOINT_FILES],
    }


def _networks(settings: dict[str, Any]) -> Any:
    """Return the model behind its backbone, or None if it needs data to be built."""
    import torch

    changes = build("data.view", settings["data"]["view"], None)
    backbone, model = without_weights(settings["backbone"]), settings["model"]
    try:
        with torch.device("meta"):
            built = build("backbone", backbone, modules_of(backbone))
            settings["reads_photographs"] = built.reads_photographs
            if settings["data"]["views"] > 1:
                built.viewed(changes.view(1))
            return build(
                "model", model, modules_of(model), vocab_size=len(NAMES) + 1, **built.sizes
            )
    except CaptioningError as refusal:
        if isinstance(refusal.__cause__, RuntimeError):
            return None
        raise


def _rules(config: DictConfig, objective: Any, model: Any, device: Any) -> dict[str, bool]:
    """Return rules between settings: messages, and True for each that is violated."""
    data, trainer, callbacks, decoding = (
        config.data,
        config.trainer,
        config.callbacks,
        config.decoding,
    )
    accelerator, devices, precision = trainer.accelerator, trainer.devices, str(trainer.precision)
    epochs, every = trainer.max_epochs, trainer.check_val_every_n_epoch
    limit, inputs = config.model.get("max_tokens"), data.max_words + 1
    learner, system = config.objective._target_, config.model._target_
    rate, chosen_by = config.optimizer.get("backbone_lr"), str(callbacks.checkpoint.get("monitor"))
    select = decoding.get("beam_widths")
    backbones = list(each_part("", OmegaConf.to_container(config.backbone, resolve=True)))
    relative = (config.model.get("encoder") or {}).get("relative", "none")
    unplaced = relative != "none" and any(
        each["_target_"].endswith(".Precomputed") for _, each in backbones
    )
    trained = [backbone["trainable"] for _, backbone in backbones if "trainable" in backbone]
    files = [
        Path(str(each["weights"]))
        for _, each in backbones
        if each.get("weights") not in (None, "DEFAULT")
    ]
    absent = [file for file in files if config.init_from is None and not file.expanduser().exists()]
    started = int(os.environ.get("WORLD_SIZE", 1))
    no_best = (
        "there is no best checkpoint to test: set "
        f"test=false{' and decoding.beam_widths=null' if select else ''}"
    )
    best, no_gpu = bool(config.test or select), device.type == "cpu"
    many_jobs = "joblib" in str(HydraConfig.get().launcher._target_)
    lone = started > 1 and devices == 1 and trainer.get("num_nodes", 1) == 1
    wordless = config.init_from is None and data.vocabulary == FROM_CHECKPOINT
    unattentive = objective.needs_attention and not getattr(model, "attends", True)
    unlogged = bool(callbacks.get("learning_rate")) and not any((config.logger or {}).values())
    return {
        "data.vocabulary=checkpoint takes the words of init_from=CHECKPOINT, which is not "
        "set": wordless,
        f"backbone.weights={absent and absent[0]} does not exist: it must be DEFAULT, null or a "
        "file": bool(absent),
        f"data.max_words={inputs - 1} makes inputs of {inputs} tokens (with BOS), and "
        f"model.max_tokens={limit}: "
        f"set model.max_tokens={inputs} or data.max_words={limit and limit - 1}": limit is not None
        and inputs > limit,
        f"objective {learner} learns from sampled attention, and model {system} samples none: use "
        "model=sat_hard or "
        "model=sat_soft": objective.stochastic and not getattr(model, "stochastic", False),
        f"objective {learner} regularises attention, and model {system} has none: set "
        "objective.doubly_stochastic=0, or give it attention (model/score=mlp)": unattentive,
        f"model.encoder.relative={relative} needs places, and backbone=features has none: set it "
        "to none": unplaced,
        "objective.kl_weight holds the model near the one that training begins from, which is "
        "random: set "
        "init_from=CHECKPOINT, or objective.kl_weight=0": objective.needs_initial
        and config.init_from is None,
        f"optimizer.backbone_lr={rate} needs a backbone that is trained: set "
        "backbone.trainable=true, or "
        "optimizer.backbone_lr=null": rate is not None and bool(trained) and not any(trained),
        f"decoding.beam_widths={select} has one twice": len(set(select or ())) < len(select or ()),
        "decoding.beam_widths needs a search with decoding.width, such as decoding=beam": select
        and "width" not in decoding,
        "callbacks.results writes the test: without it set test=false": config.test
        and not callbacks.get("results"),
        "callbacks.learning_rate needs a logger: keep logger.csv, or set "
        "callbacks.learning_rate=null": unlogged,
        **monitor_rules(config, getattr(model, "attends", True)),
        f"decoding.beam_widths={select} compares the scores of captions, and "
        f"callbacks.checkpoint.monitor={chosen_by} is "
        "none: set decoding.beam_widths=null, or monitor a score": bool(select)
        and not is_score(chosen_by),
        f"trainer.max_epochs={epochs} ends before the first validation "
        f"(trainer.check_val_every_n_epoch={every}), and "
        f"{no_best}": best and epochs is not None and 0 <= epochs < (every or 1),
        **{
            no_setting("trainer", name, ()): bool(trainer.get(name))
            for name in (key.removeprefix("trainer.") for key in INSTEAD)
        },
        **{
            f"with trainer.limit_{split}_batches=0 {no_best}": best
            and trainer.get(f"limit_{split}_batches") == 0
            for split in ("train", "val", "test")
        },
        f"hydra/launcher=processes gives each job one process, and trainer.devices={devices} needs "
        "others: set "
        "trainer.devices=1, or leave the launcher out": many_jobs and devices != 1,
        f"{started} processes were started, and with trainer.devices=1 each would train on its "
        "own: set trainer=ddp "
        "and trainer.devices to their number per node": lone,
        f"trainer.accelerator={accelerator}, and PyTorch finds no GPU here; use trainer=cpu or "
        "trainer=auto": (no_gpu and accelerator in ("gpu", "cuda")),
        f"trainer.precision={precision} needs a GPU; use 32-true or bf16-mixed": no_gpu
        and precision.startswith("16"),
        "trainer.precision=16-mixed scales the loss, and a fused optimizer hides the true "
        "gradients from "
        "trainer.gradient_clip_val: use bf16-mixed or optimizer.fused=false": (
            precision == "16-mixed"
            and bool(trainer.gradient_clip_val and config.optimizer.get("fused"))
        ),
    }
