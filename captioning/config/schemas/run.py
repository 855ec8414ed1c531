"""The settings of `captioning run`, and the rules among them that need no part to be built."""

import os
from collections.abc import Sequence
from typing import Any, Literal, Self

from hydra.core.hydra_config import HydraConfig
from pydantic import Field, model_validator

from captioning.config.schemas.parts import (
    CheckpointPart,
    EarlyStoppingPart,
    ModelPart,
    OptimizerPart,
    SearchPart,
    TrainerPart,
)
from captioning.config.settings import DataSettings, Settings
from captioning.config.types import (
    BatchSize,
    Count,
    Free,
    Length,
    Name,
    PartConfig,
    PathText,
    Place,
    PositiveInt,
    Seconds,
    Seed,
    Workers,
)
from captioning.metrics.table import MetricName, MetricNames
from captioning.tokens import FROM_CHECKPOINT


class RunDataSettings(DataSettings):
    """Settings below `data`."""

    view: PartConfig
    views: Count
    batch_size: BatchSize
    eval_batch_size: BatchSize
    captions_per_image: Count
    max_words: Length
    max_pieces: Length | None
    metrics: Free[Sequence[MetricName]]
    groups: Free[str | None] = None
    model_size: Free[Any] = None
    num_workers: Free[Workers]
    train_images: PositiveInt | None
    train_images_seed: Seed
    vocabulary_images: Literal["subset", "all"]
    skip_broken: bool
    cache_features: bool = True


class CallbackSettings(Settings, extra="allow"):
    """Settings below `callbacks`."""

    __pydantic_extra__: dict[str, PartConfig | None] = Field(init=False)
    checkpoint: CheckpointPart
    early_stopping: EarlyStoppingPart | None = None
    progress_bar: Free[PartConfig | None] = None
    wandb: Free[PartConfig | None] = None
    gradient_norm: Free[PartConfig | None] = None

    @property
    def parts(self) -> dict[str, PartConfig]:
        """Those that are not null, in their order."""
        return {name: part for name, part in self.plain.items() if part is not None}

    @property
    def monitors(self) -> dict[str, str]:
        """The column of `metrics.csv` that a callback monitors, by the name of the callback."""
        return {name: part["monitor"] for name, part in self.parts.items() if part.get("monitor")}


class MetricSettings(Settings):
    """Settings below `metrics`."""

    val: Sequence[MetricName]
    """scores of validation, without Java"""
    test: MetricNames
    """scores of the test; without Java METEOR is skipped"""
    timeout: Free[Seconds]
    """seconds without an answer after which a Java scorer is given up"""


class ChoiceSettings(Settings, extra="allow"):
    """Settings below `choices`."""

    model: Any
    """the model's name in tables; a run adds parts and swept settings"""
    data: Any
    """the data set's name in tables"""
    experiment: Any
    """the experiment, if any"""


class RunSettings(Settings):
    """Settings of a run. Parts are judged by their classes when PyTorch is imported."""

    choices: Free[ChoiceSettings]
    name: Name
    """name of the experiment; experiments set their own"""
    folder: Place[str | None]
    """the run folder, set by the run"""
    seed: Seed
    """random seed of weights, the order of images and sampling"""
    resume: Free[bool | PathText | None]
    """true: resume the interrupted run with these settings; or its folder; null: only in sweeps"""
    init_from: PathText | None
    """a checkpoint to fine-tune: weights, vocabulary, model and backbone"""
    test: Free[bool]
    """false: skip the test split, for hyperparameter search"""
    runs: Free[PathText]
    """run folders are <runs>/<name>-<model>-seed<seed>[-KEY=VALUE ...]"""
    debug: Free[bool]
    """true: a dry run of every part, see conf/debug.yaml"""
    cache: Place[PathText]
    """drawn scenes and cached features"""
    metrics: MetricSettings
    backbone: PartConfig
    model: ModelPart
    objective: PartConfig
    decoding: SearchPart
    optimizer: OptimizerPart
    schedule: PartConfig
    trainer: TrainerPart
    data: RunDataSettings
    callbacks: CallbackSettings
    logger: Free[dict[str, PartConfig | None] | None]

    @property
    def loggers(self) -> dict[str, PartConfig]:
        """Those that are not null."""
        return {name: part for name, part in (self.logger or {}).items() if part is not None}

    @model_validator(mode="after")
    def _has_words_that_fit(self) -> Self:
        if self.init_from is None and self.data.vocabulary == FROM_CHECKPOINT:
            raise ValueError(
                "data.vocabulary=checkpoint takes the words of init_from=CHECKPOINT, which is not "
                "set"
            )
        limit, longest = self.model.max_tokens, self.data.max_pieces
        if limit and longest and longest + 1 > limit:
            key = "data.max_words" if longest == self.data.max_words else "data.max_pieces"
            raise ValueError(
                f"{key}={longest} makes inputs of {longest + 1} tokens (with BOS), and "
                f"model.max_tokens={limit}: set model.max_tokens={longest + 1} or {key}={limit - 1}"
            )
        path = self.model.path if "architecture" in self.model.plain else None
        words = self.data.vocabulary
        if path and isinstance(words, dict) and words.get("subwords") != path:
            raise ValueError(
                f"model.path={path} reads tokens of its own: add data.vocabulary.subwords={path}"
            )
        return self

    @model_validator(mode="after")
    def _has_what_it_ends_with(self) -> Self:
        callbacks = self.callbacks.parts
        if self.test and "results" not in callbacks:
            raise ValueError("callbacks.results writes the test: without it set test=false")
        if "learning_rate" in callbacks and not self.loggers:
            raise ValueError(
                "callbacks.learning_rate needs a logger: keep logger.csv, or set "
                "callbacks.learning_rate=null"
            )
        if not (self.test or self.decoding.beam_widths):
            return self
        select = " and decoding.beam_widths=null" if self.decoding.beam_widths else ""
        no_best = f"there is no best checkpoint to test: set test=false{select}"
        epochs, every = self.trainer.max_epochs, self.trainer.check_val_every_n_epoch
        if epochs is not None and 0 <= epochs < (every or 1):
            raise ValueError(
                f"trainer.max_epochs={epochs} ends before the first validation "
                f"(trainer.check_val_every_n_epoch={every}), and {no_best}"
            )
        for split in ("train", "val", "test"):
            if getattr(self.trainer, f"limit_{split}_batches") == 0:
                raise ValueError(f"with trainer.limit_{split}_batches=0 {no_best}")
        return self

    @model_validator(mode="after")
    def _uses_its_processes(self) -> Self:
        devices, started = self.trainer.devices, int(os.environ.get("WORLD_SIZE", 1))
        launcher = HydraConfig.get().launcher._target_ if HydraConfig.initialized() else ""
        if "joblib" in launcher and devices != 1:
            raise ValueError(
                "hydra/launcher=processes gives each job one process, and trainer.devices="
                f"{devices} needs others: set trainer.devices=1, or leave the launcher out"
            )
        if started > 1 and devices == 1 and self.trainer.num_nodes == 1:
            raise ValueError(
                f"{started} processes were started, and with trainer.devices=1 each would train on "
                "its own: set trainer=ddp and trainer.devices to their number per node"
            )
        return self
