"""The settings of `captioning run`, and the rules among them that need no part to be built."""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge
from hydra.core.hydra_config import HydraConfig
from pydantic import Field, model_validator

from captioning.config.settings import DataSettings, SearchSettings, Settings, with_role
from captioning.config.types import (
    BatchSize,
    Beside,
    Config,
    Count,
    Distinct,
    Free,
    Length,
    Name,
    NotNegative,
    NotNegativeInt,
    PartConfig,
    PathText,
    Place,
    Positive,
    PositiveInt,
    Role,
    Seconds,
    Seed,
    Workers,
)
from captioning.errors import no_setting, ours_for
from captioning.metrics.table import MetricName, MetricNames
from captioning.tokens import FROM_CHECKPOINT

OrEndless = PositiveInt | Literal[-1]


class PartSettings(Settings, extra="allow"):
    """Settings of a part, some of which are not its arguments or have narrower bounds."""

    @property
    def part(self) -> PartConfig:
        """What the part is built from: its class and arguments alone."""
        beside = with_role(type(self), Role.BESIDE)
        return {key: value for key, value in self.plain.items() if key not in beside}


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


class ModelPart(PartSettings):
    """Settings below `model`."""

    title: Beside[Free[Any]] = None
    size: Beside[Free[Any]] = None
    sha256: Beside[Any] = None

    @property
    def max_tokens(self) -> int | None:
        """The longest input that the model reads, if it is limited."""
        limit = self.plain.get("max_tokens")
        return limit if isinstance(limit, int) else None

    @property
    def path(self) -> str | None:
        """The folder of a language model's weights."""
        return self.plain.get("path")

    @property
    def freeze(self) -> bool:
        """Whether a language model keeps its weights."""
        return bool(self.plain.get("freeze"))

    @property
    def relative(self) -> str:
        """How the encoder sees the places of image vectors relative to each other."""
        encoder = self.plain.get("encoder") or {}
        return encoder.get("relative", "none")


class SearchPart(PartSettings, SearchSettings):
    """Settings below `decoding`."""

    beam_widths: Beside[Distinct[Count] | None] = None
    """[1,3,5]: after training, tests the width that is best on validation"""

    @model_validator(mode="after")
    def _has_widths(self) -> Self:
        if self.beam_widths and "width" not in self.model_fields_set:
            raise ValueError(
                "decoding.beam_widths needs a search with decoding.width, such as decoding=beam"
            )
        return self


class OptimizerPart(PartSettings):
    """Settings below `optimizer`."""

    lr: NotNegative | None = None
    backbone_lr: Beside[Positive | None] = None
    pretrained_lr: Beside[Positive | None] = None


class TrainerPart(PartSettings):
    """Bounds that Lightning misses, or finds in the middle of a run."""

    accelerator: str
    devices: Any
    num_nodes: Any = 1
    precision: Any
    max_epochs: Annotated[int, Ge(-1)] | None
    max_steps: OrEndless
    accumulate_grad_batches: PositiveInt
    gradient_clip_val: NotNegative | None
    check_val_every_n_epoch: PositiveInt | None
    log_every_n_steps: PositiveInt | None
    val_check_interval: Positive | str | dict[str, int] | None = None
    plugins: Any = None
    limit_train_batches: Any = None
    limit_val_batches: Any = None
    limit_test_batches: Any = None

    @model_validator(mode="after")
    def _has_another_way(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if value and ours_for(f"trainer.{name}"):
                raise ValueError(no_setting("trainer", name, list(type(self).model_fields)))
        return self


class CheckpointPart(PartSettings):
    """Settings below `callbacks.checkpoint`."""

    monitor: str
    save_top_k: OrEndless | None = None


class EarlyStoppingPart(PartSettings):
    """Settings below `callbacks.early_stopping`."""

    patience: NotNegativeInt | None = None


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
        watching = {name: part for name, part in self.parts.items() if part.get("monitor")}
        return {name: part["monitor"] for name, part in watching.items()}


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
        if limit is not None and longest is not None and longest + 1 > limit:
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
        callbacks = self.callbacks.model_extra or {}
        if self.test and not callbacks.get("results"):
            raise ValueError("callbacks.results writes the test: without it set test=false")
        if callbacks.get("learning_rate") and not any(self.loggers.values()):
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


def strip_extra_keys(config: Config) -> Config:
    """A stored configuration whose parts have arguments of their constructors alone."""
    stripped = dict(config)
    for key in with_role(RunSettings, Role.BESIDE):
        group, _, name = key.partition(".")
        if isinstance(config.get(group), Mapping):
            stripped[group] = {k: v for k, v in stripped[group].items() if k != name}
    return stripped
