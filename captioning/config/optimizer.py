"""The settings of a run's optimiser, whatever class it is, and the one beside them that no class knows."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.config.settings import each_setting
from captioning.config.signatures import check_value
from captioning.config.types import Positive
from captioning.errors import CaptioningError, quoted

BACKBONE_LR = "backbone_lr"


def optimizer_settings(config: DictConfig) -> dict[str, Any]:
    """The settings of the optimiser itself."""
    settings: Any = OmegaConf.to_container(config.optimizer, resolve=True)
    return {name: value for name, value in settings.items() if name != BACKBONE_LR}


def backbone_lr(config: DictConfig) -> float | None:
    """The learning rate of a trained backbone; None for that of all other parameters.

    Raises:
        CaptioningError: it is no learning rate, or no backbone is trained.
    """
    rate = config.optimizer.get(BACKBONE_LR)
    check_value(f"optimizer.{BACKBONE_LR}", rate, Positive | None)
    backbone = OmegaConf.to_container(config.backbone, resolve=True)
    trained = [value for key, value in each_setting(backbone) if key.rpartition(".")[2] == "trainable"]  # of each
    if rate is not None and trained and not any(trained):
        raise CaptioningError(
            f"optimizer.{BACKBONE_LR}={quoted(rate)} is of a backbone that is trained: set backbone.trainable=true, "
            f"or leave optimizer.{BACKBONE_LR}=null"
        )
    return rate
