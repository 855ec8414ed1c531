"""The W&B logger, offline where nobody is logged in."""

import os
from typing import Any

from lightning.pytorch.loggers import WandbLogger


def wandb_logger(**settings: Any) -> WandbLogger:
    """A `WandbLogger` that asks no question: without credentials the run is kept below `save_dir`.

    `wandb sync` uploads it later. WANDB_MODE, where it is set, decides instead.

    Args:
        settings: of `WandbLogger`.
    """
    import wandb  # here, because it takes seconds and most runs do without

    if "WANDB_MODE" not in os.environ and not wandb.login(prompt=False):
        settings["offline"] = True
    return WandbLogger(**settings)
