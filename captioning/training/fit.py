"""The last steps before training: its precision, its trainer, and how it begins."""

import logging
from pathlib import Path

from lightning import Fabric, Trainer
from lightning.pytorch.callbacks import Callback, ProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

from captioning.config.registry import build
from captioning.config.schemas.parts import TrainerPart
from captioning.config.schemas.run import RunSettings
from captioning.config.types import PartConfig
from captioning.data.module import CaptionData
from captioning.errors import CaptioningError, quoted
from captioning.machine import device_of, has_bfloat16
from captioning.training.callbacks.initial import InitialScore
from captioning.training.module import CaptioningModule

CHECKPOINT_FILES = {"_target_": "captioning.training.callbacks.resume.CheckpointFiles"}

log = logging.getLogger(__name__)


def check_devices(trainer: TrainerPart) -> None:
    """Refuse devices that this machine does not have, and a precision that they do not have."""
    accelerator, devices, precision = trainer.accelerator, trainer.devices, trainer.precision
    try:
        Fabric(accelerator=accelerator, devices=devices)  # which judges them as a trainer does
    except Exception as error:  # of several kinds
        raise CaptioningError(
            f"trainer.accelerator={accelerator} trainer.devices={quoted(devices)} cannot be used "
            f"on this machine ({quoted(error)}): set trainer=cpu trainer.devices=1, or what "
            "captioning doctor finds"
        ) from error
    if str(precision).startswith("16") and device_of(accelerator).type == "cpu":
        raise CaptioningError(
            f"trainer.precision={precision} needs a GPU; use 32-true or bf16-mixed"
        )


def fitting_precision(trainer: TrainerPart) -> str:
    """The precision that `auto` is on this machine, or the one that is configured."""
    if trainer.precision != "auto":
        return trainer.precision
    return "bf16-mixed" if has_bfloat16(device_of(trainer.accelerator)) else "32-true"


def log_precision(trainer: TrainerPart, used: str) -> None:
    """Log the precision in use and a faster one; `used` may come from another machine."""
    device = device_of(trainer.accelerator)
    fast, kind = has_bfloat16(device), "CPU" if device.type == "cpu" else "GPU"
    hardware = f"this {kind} is {'faster' if fast else 'slower'} in bfloat16"
    if trainer.precision == "auto":
        fits = used == fitting_precision(trainer)
        since = "from trainer.precision=auto" if fits else "with which this run began"
        log.info("precision: %s, %s; %s", used, since, hardware)
    elif used.startswith("bf16") != fast:
        log.log(
            logging.INFO if fast else logging.WARNING,
            "precision: %s; %s: a new run may take trainer.precision=auto",
            used,
            hardware,
        )


def build_trainer(settings: RunSettings, precision: str) -> Trainer:
    """The trainer with its callbacks and loggers."""
    callbacks = [
        build(f"callbacks.{name}", Callback, part, None)
        for name, part in settings.callbacks.parts.items()
    ]
    loggers = [
        build(f"logger.{name}", Logger, part, None) for name, part in settings.loggers.items()
    ]
    trainer = with_checkpoint_files(settings.trainer)
    trainer |= {"precision": precision, "default_root_dir": settings.folder}
    if settings.init_from:
        callbacks.append(InitialScore())
        trainer["num_sanity_val_steps"] = -1  # all batches; a resumed run has done it
    # Otherwise Lightning would add its own bar.
    trainer["enable_progress_bar"] = any(isinstance(each, ProgressBar) for each in callbacks)
    return build("trainer", Trainer, trainer, None, callbacks=callbacks, logger=loggers)


def with_checkpoint_files(trainer: TrainerPart) -> PartConfig:
    """The settings of a trainer for this machine.

    Our plugin stands beside its own: others' checkpoints could not be read again.
    """
    given = trainer.plugins or []
    plugins = given if isinstance(given, list) else [given]
    others = [plugin for plugin in plugins if plugin != CHECKPOINT_FILES]
    own = {"plugins": [*others, CHECKPOINT_FILES], "precision": fitting_precision(trainer)}
    return trainer.part | own


def start_processes(trainer: Trainer) -> None:
    """Start the processes of this machine, which Lightning would start later, on their devices."""
    strategy = trainer.strategy
    trainer.accelerator.setup_device(strategy.root_device)
    if isinstance(strategy.launcher, _SubprocessScriptLauncher):  # others fork this one
        strategy.launcher.launch(bool)


def fit(
    trainer: Trainer, module: CaptioningModule, data: CaptionData, checkpoint: Path | None
) -> None:
    """Train, or resume from `checkpoint`.

    Errors before the first step are the settings' or the file's.
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
