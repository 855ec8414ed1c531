"""The logger of Weights & Biases.

Runs are offline without a login or a connection.
"""

import logging
import os
import re
import secrets
import shlex
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Literal

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from captioning.config.types import UserPath, validated
from captioning.files import write_text
from captioning.machine import is_rank_zero
from captioning.metrics.metric import BLEU_ALONE
from captioning.metrics.table import SCORES

TIMEOUT = 20
"""Seconds to wait for W&B."""
DATA_DIR = os.environ.get("WANDB_DATA_DIR")
"""Folder set by the user for files waiting to be uploaded."""
STEP, EPOCH = "trainer/global_step", "epoch"
"""Axes: epochs for validations, optimiser steps for other values."""

log = logging.getLogger(__name__)


class Dashboard(WandbLogger):
    """A `WandbLogger` whose panels show training only: scores of the test go into the summary."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        tested = {
            name: value
            for name, value in metrics.items()
            if name.startswith("test/") and isinstance(value, int | float)  # tables are none
        }
        self.experiment.summary.update(tested)
        others = {name: value for name, value in metrics.items() if name not in tested}
        if others.keys() - {EPOCH}:
            super().log_metrics(others, step)


@validated
def wandb_logger(
    save_dir: UserPath,
    offline: bool = False,
    log_model: Literal["all"] | bool = False,
    **settings: Any,
) -> WandbLogger:
    """Make a `WandbLogger` without prompts: without credentials the run is offline, in `save_dir`.

    `wandb sync` uploads it later. WANDB_MODE takes precedence. A resumed run has the same id in
    W&B, kept in `save_dir/wandb_id`; a run started by a sweep agent has the agent's. `settings` are
    those of `wandb.init`; by default `name` is that of the run folder `save_dir`, and `group` that
    without the seed.
    """
    if not is_rank_zero():
        return WandbLogger(save_dir=save_dir)  # logs nothing
    import wandb  # here, because it takes seconds and most runs do not need it

    wandb.finish()  # of an earlier run of this process
    wandb.teardown()  # or W&B warns that it does not read the environment again
    # Files waiting to be uploaded belong in the run folder, not in the user's home.
    os.environ["WANDB_DATA_DIR"] = DATA_DIR or str((save_dir / "wandb").absolute())
    known = save_dir / "wandb_id"
    agents = os.environ.get("WANDB_RUN_ID")
    if agents or not known.exists():
        write_text(known, agents or secrets.token_hex(8))
    settings = {"dir": str(save_dir), "id": known.read_text(encoding="utf-8")} | settings
    settings["name"] = settings.get("name") or save_dir.name
    settings["group"] = settings.get("group") or re.sub(r"(.*)-seed\d+", r"\1", save_dir.name)
    run = None if offline or not _logged_in(wandb) else _connected(wandb, settings)
    if run is None:  # offline, W&B cannot be asked to resume
        run = wandb.init(mode="offline", settings=wandb.Settings(silent=True), **settings)
        folder = shlex.quote(run.settings.sync_dir)
        log.info("W&B is offline; this uploads the run: wandb sync %s", folder)
    for axis in (STEP, EPOCH, "seconds"):
        run.define_metric(axis, hidden=True)
    run.define_metric("*", step_metric=STEP)
    run.define_metric("val/*", step_metric=EPOCH)
    run.define_metric("val/nll", step_metric=EPOCH, summary="min")
    for score in SCORES.values():
        if score.best:  # of others the summary is the last value
            # tables of papers ask for BLEU without brevity penalty, curves do not
            hidden = {"hidden": True} if score.group == BLEU_ALONE else {}
            run.define_metric(f"val/{score.name}", step_metric=EPOCH, summary=score.best, **hidden)
    return Dashboard(experiment=run, save_dir=save_dir, log_model=log_model)


def _logged_in(wandb: ModuleType) -> bool:
    if "WANDB_MODE" in os.environ:
        return os.environ["WANDB_MODE"] not in ("offline", "dryrun")
    try:
        return wandb.login(prompt=False)
    except wandb.Error:  # W&B does not answer; connecting will fail too, with the cause
        return True


def _connected(wandb: ModuleType, settings: Mapping[str, Any]) -> Any:
    """The run, or None if W&B cannot be reached."""
    try:
        return wandb.init(
            resume="allow", settings=wandb.Settings(init_timeout=TIMEOUT, quiet=True), **settings
        )
    except wandb.Error as error:
        reason = str(error).splitlines()[0]
        wandb.teardown()  # otherwise W&B considers the id active
        os.environ["WANDB_MODE"] = "offline"  # later runs of this process do not wait again
        log.warning("W&B: %s", reason)
        return None
