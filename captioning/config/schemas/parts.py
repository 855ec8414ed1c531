"""The settings of a run's parts that are not their arguments, or have narrower bounds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge
from pydantic import model_validator

from captioning.config.settings import SearchSettings, Settings, with_role
from captioning.config.types import (
    Beside,
    Config,
    Count,
    Distinct,
    Free,
    NotNegative,
    NotNegativeInt,
    PartConfig,
    Positive,
    PositiveInt,
    Role,
)
from captioning.errors import no_setting, ours_for

OrEndless = PositiveInt | Literal[-1]


class PartSettings(Settings, extra="allow"):
    """Settings of a part, some of which are not its arguments or have narrower bounds."""

    @classmethod
    def arguments_of(cls, part: PartConfig) -> PartConfig:
        """What a part is built from: its class and arguments alone."""
        beside = with_role(cls, Role.BESIDE)
        return {key: value for key, value in part.items() if key not in beside}

    @property
    def part(self) -> PartConfig:
        """What this part is built from."""
        return self.arguments_of(self.plain)


class ModelPart(PartSettings):
    """Settings below `model`."""

    title: Beside[Free[Any]] = None
    size: Beside[Free[Any]] = None
    sha256: Beside[Any] = None
    max_tokens: int | None = None
    path: str | None = None
    freeze: bool | None = None

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
    mode: Literal["min", "max"] = "min"  # as of Lightning's class
    save_top_k: OrEndless | None = None


class EarlyStoppingPart(PartSettings):
    """Settings below `callbacks.early_stopping`."""

    patience: NotNegativeInt | None = None


def strip_extra_keys(config: Config) -> Config:
    """A stored configuration whose parts have arguments of their constructors alone."""
    stripped = dict(config)
    for group, schema in BESIDE.items():
        if isinstance(config.get(group), Mapping):
            stripped[group] = schema.arguments_of(config[group])
    return stripped


BESIDE: dict[str, Any] = {"model": ModelPart, "decoding": SearchPart, "optimizer": OptimizerPart}
"""Parts with settings that are not their arguments."""
