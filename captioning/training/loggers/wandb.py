"""The W&B logger, offline where nobody is logged in or W&B cannot be reached."""

import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from captioning.config.types import validated
from captioning.metrics.scorer import BLEU_ALONE, SCORES

TIMEOUT = 20
"""Seconds to wait for W&B's answer."""
DATA_DIR = os.environ.get("WANDB_DATA_DIR")
"""Where the user wants files that wait to be uploaded."""
STEP, EPOCH = "trainer/global_step", "epoch"
"""The axes: optimiser steps, for what is not of a validation, and epochs."""
log = logging.getLogger(__name__)


class Dashboard(WandbLogger):
    """A `WandbLogger` whose panels show what changes in training: numbers of the test go into the summary alone."""

    @property
    def version(self) -> str:
        """None, which Lightning would show in the progress bar."""
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Those of the test are summed up, anything else of it is logged."""
        tested = {n: value for n, value in metrics.items() if n.startswith("test/") and isinstance(value, int | float)}
        self.experiment.summary.update(tested)
        if metrics.keys() - tested.keys() - {EPOCH}:
            super().log_metrics({n: value for n, value in metrics.items() if n not in tested}, step)


@validated
def wandb_logger(
    save_dir: str | Path, offline: bool = False, log_model: Literal["all"] | bool = False, **settings: Any
) -> WandbLogger:
    """A `WandbLogger` that asks no question: without credentials the run is kept below `save_dir`.

    `wandb sync` uploads it later. WANDB_MODE, where it is set, decides instead. A resumed run is the same one in W&B:
    its id, a sweep agent's where one has started the run, is kept in `save_dir/wandb_id`.

    Args:
        save_dir: the run folder.
        offline: true keeps the run there anyway.
        log_model: as of `WandbLogger`.
        settings: of `wandb.init`.
    """
    if rank_zero_only.rank > 0:  # type: ignore[attr-defined]
        return WandbLogger(save_dir=save_dir)  # logs nothing
    import wandb  # here, because it takes seconds and most runs do without

    wandb.finish()  # ends the run before, where one process has several
    wandb.teardown()  # or W&B warns that it does not look at the environment again
    # Files that wait to be uploaded lie with the rest of the run, not in the user's home.
    os.environ["WANDB_DATA_DIR"] = DATA_DIR or str(Path(save_dir, "wandb").absolute())
    settings = {"dir": str(save_dir), "id": _id(Path(save_dir) / "wandb_id")} | settings
    run = None if offline or not _logged_in(wandb) else _connected(wandb, settings)
    # Without a connection there is nothing that it could ask W&B to resume.
    run = run or wandb.init(mode="offline", **settings)
    _define_metrics(run)
    return Dashboard(experiment=run, save_dir=save_dir, log_model=log_model)


def _logged_in(wandb: ModuleType) -> bool:
    if "WANDB_MODE" in os.environ:
        return os.environ["WANDB_MODE"] not in ("offline", "dryrun")
    try:
        return bool(wandb.login(prompt=False))
    except wandb.Error:  # W&B does not answer; connecting will fail too, and say why
        return True


def _connected(wandb: ModuleType, settings: Mapping[str, Any]) -> Any:
    """The run, or None where W&B cannot be reached."""
    try:
        return wandb.init(resume="allow", settings=wandb.Settings(init_timeout=TIMEOUT), **settings)
    except wandb.Error as error:
        reason = str(error).splitlines()[0]
        wandb.teardown()  # or W&B takes the id for that of a run under way
        os.environ["WANDB_MODE"] = "offline"  # later runs of this process need not wait again
        log.warning("W&B: %s. The run is kept in %s; `wandb sync` uploads it later", reason, settings["dir"])
        return None


def _define_metrics(run: Any) -> None:
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


def _id(file: Path) -> str:
    if agents := os.environ.get("WANDB_RUN_ID"):
        file.write_text(agents, encoding="utf-8")
    elif not file.exists():
        file.write_text(secrets.token_hex(8), encoding="utf-8")
    return file.read_text(encoding="utf-8")
