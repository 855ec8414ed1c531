"""The W&B logger, offline where nobody is logged in or W&B cannot be reached."""

import logging
import os
import secrets
from pathlib import Path
from types import ModuleType
from typing import Any

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_only

TIMEOUT = 20
"""Seconds to wait for W&B's answer."""
DATA_DIR = os.environ.get("WANDB_DATA_DIR")
"""Where the user wants files that wait to be uploaded."""

log = logging.getLogger(__name__)


def wandb_logger(save_dir: str | Path, offline: bool = False, **settings: Any) -> WandbLogger:
    """A `WandbLogger` that asks no question: without credentials the run is kept below `save_dir`.

    `wandb sync` uploads it later. WANDB_MODE, where it is set, decides instead. A resumed run is the same one in W&B:
    its id, a sweep agent's where one has started the run, is kept in `save_dir/wandb_id`.

    Args:
        save_dir: the run folder.
        offline: true keeps the run there anyway.
        settings: others of `WandbLogger`.
    """
    import wandb  # here, because it takes seconds and most runs do without

    if rank_zero_only.rank > 0:  # type: ignore[attr-defined]
        return WandbLogger(save_dir=save_dir, **settings)  # logs nothing
    wandb.finish()  # ends the run before, where one process has several
    # Files that wait to be uploaded lie with the rest of the run, not in the user's home.
    os.environ["WANDB_DATA_DIR"] = DATA_DIR or str(Path(save_dir, "wandb").absolute())
    settings = {"id": _id(Path(save_dir) / "wandb_id")} | settings
    if not offline and _logged_in(wandb):
        logger = WandbLogger(save_dir=save_dir, settings=wandb.Settings(init_timeout=TIMEOUT), **settings)
        try:
            logger.experiment  # noqa: B018 - it connects
        except wandb.Error as error:
            reason = str(error).splitlines()[0]
            wandb.teardown()  # or W&B takes the id for that of a run under way
            os.environ["WANDB_MODE"] = "offline"  # later runs of this process need not wait again
            log.warning("W&B: %s. The run is kept in %s; `wandb sync` uploads it later", reason, save_dir)
        else:
            return logger
    # not `offline=True`, with which Lightning refuses to keep a checkpoint for later
    return WandbLogger(save_dir=save_dir, mode="offline", **settings)


def _logged_in(wandb: ModuleType) -> bool:
    if "WANDB_MODE" in os.environ:
        return True
    try:
        return bool(wandb.login(prompt=False))
    except wandb.Error:  # W&B does not answer; connecting will fail too, and say why
        return True


def _id(file: Path) -> str:
    if agents := os.environ.get("WANDB_RUN_ID"):
        file.write_text(agents, encoding="utf-8")
    elif not file.exists():
        file.write_text(secrets.token_hex(8), encoding="utf-8")
    return file.read_text(encoding="utf-8")
