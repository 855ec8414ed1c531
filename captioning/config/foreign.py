"""Bounds of parameters of other libraries' classes, whose annotations have none."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval, MinLen

from captioning.config.types import Count, NotNegative, PathText, Positive, Share

_Number = Annotated[int, Ge(0)]
_AtLeastOne = Annotated[int, Ge(1)]
_Batches = Annotated[int, Ge(0)] | Annotated[float, Interval(ge=0, le=1)] | None
_SomeBatches = Annotated[int, Ge(1)] | Annotated[float, Interval(gt=0, le=1)] | None
_Mode = Literal["min", "max"]

BOUNDS: Mapping[str, Mapping[str, Any]] = {
    "torch.optim.optimizer.Optimizer": {
        "lr": Positive,
        "betas": tuple[Share, Share],
        "eps": NotNegative,
        "weight_decay": NotNegative,
        "momentum": Share,
        "alpha": Share,
        "dampening": Share,
    },
    "lightning.pytorch.trainer.trainer.Trainer": {
        "accelerator": Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu"],
        "precision": Literal[
            *("auto", "32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true", "16-true"),
            *("32", "bf16", "16", "64", 32, 16, 64),
        ],
        "devices": Literal["auto", -1] | _AtLeastOne | str | Annotated[list[_Number], MinLen(1)],
        "num_nodes": Count,
        "max_epochs": Annotated[int, Ge(-1)] | None,
        "min_epochs": _Number | None,
        "max_steps": Literal[-1] | _AtLeastOne,
        "min_steps": _Number | None,
        "limit_train_batches": _SomeBatches,
        "limit_val_batches": _Batches,
        "limit_test_batches": _SomeBatches,
        "val_check_interval": _SomeBatches | str,
        "check_val_every_n_epoch": _AtLeastOne | None,
        "num_sanity_val_steps": Annotated[int, Ge(-1)],
        "log_every_n_steps": _AtLeastOne | None,
        "accumulate_grad_batches": _AtLeastOne,
        "gradient_clip_val": NotNegative | None,
        "gradient_clip_algorithm": Literal["norm", "value"] | None,
        "reload_dataloaders_every_n_epochs": _Number,
        "default_root_dir": PathText | None,
    },
    "lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint": {
        "mode": _Mode,
        "save_top_k": Literal[-1] | _AtLeastOne,
        "every_n_epochs": _AtLeastOne | None,
        "every_n_train_steps": _AtLeastOne | None,
    },
    "lightning.pytorch.callbacks.early_stopping.EarlyStopping": {
        "mode": _Mode,
        "patience": _Number,
        "min_delta": NotNegative,
    },
    "lightning.pytorch.callbacks.weight_averaging.EMAWeightAveraging": {
        "decay": Share,
        "update_every_n_steps": _AtLeastOne,
        "update_starting_at_step": _Number | None,
        "update_starting_at_epoch": _Number | None,
    },
}
"""By class, for its subclasses too."""


def foreign_bounds(function: Callable[..., Any]) -> dict[str, Any]:
    """What stands here for the parameters of `function`, in the place of its own annotations."""
    classes = reversed(function.__mro__) if inspect.isclass(function) else ()
    named = (BOUNDS.get(f"{each.__module__}.{each.__qualname__}", {}) for each in classes)
    return {name: hint for bounds in named for name, hint in bounds.items()}
