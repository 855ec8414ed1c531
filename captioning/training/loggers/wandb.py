"""Weights & Biases: the logger, and a callback for tables, provenance and the test.

Runs are offline without a login or a connection.
"""

import json
import logging
import os
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Literal

import lightning as L
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from PIL import Image

from captioning.config.types import NotNegativeInt, UserPath, validated
from captioning.data.example import reference_texts
from captioning.data.readers.captions import read_captions
from captioning.metrics.metric import BLEU_ALONE
from captioning.metrics.table import SCORES
from captioning.runs.evaluation.captions import FILE
from captioning.runs.settings import read_settings
from captioning.training.callbacks.records import AttentionPanels, draw, provenance
from captioning.training.callbacks.statistics import CaptionCallback, Captions, DecodedSplit

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
    if rank_zero_only.rank > 0:  # type: ignore[attr-defined]
        return WandbLogger(save_dir=save_dir)  # logs nothing
    import wandb  # here, because it takes seconds and most runs do not need it

    wandb.finish()  # of an earlier run of this process
    wandb.teardown()  # or W&B warns that it does not read the environment again
    # Files waiting to be uploaded belong in the run folder, not in the user's home.
    os.environ["WANDB_DATA_DIR"] = DATA_DIR or str((save_dir / "wandb").absolute())
    known = save_dir / "wandb_id"
    agents = os.environ.get("WANDB_RUN_ID")
    if agents or not known.exists():
        known.write_text(agents or secrets.token_hex(8), encoding="utf-8")
    settings = {"dir": str(save_dir), "id": known.read_text(encoding="utf-8")} | settings
    settings["name"] = settings.get("name") or save_dir.name
    settings["group"] = settings.get("group") or re.sub(r"(.*)-seed\d+", r"\1", save_dir.name)
    run = None if offline or not _logged_in(wandb) else _connected(wandb, settings)
    if run is None:  # offline, W&B cannot be asked to resume
        run = wandb.init(mode="offline", settings=wandb.Settings(silent=True), **settings)
        log.info(
            "W&B is offline; this uploads the run: wandb sync %s",
            shlex.quote(run.settings.sync_dir),
        )
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
        return bool(wandb.login(prompt=False))
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


class WandbRecord(CaptionCallback):
    """Log provenance, captions and attention panels to W&B.

    Of the same images at every validation, and of the test.

    The panels of a validation are one media panel of W&B, with a slider over validations. The table
    has the captions of all validations. Part of `logger=wandb`; it does nothing without that
    logger. `folder` is the run folder with its `config.yaml`.
    """

    splits = ("val",)

    @validated
    def __init__(self, folder: UserPath, images: NotNegativeInt) -> None:
        self.folder, self.images = folder, images
        self._rows: list[list[Any]] = []  # of the table

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self._rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._rows = state_dict["rows"]

    def on_fit_start(self, trainer: L.Trainer, *_: Any) -> None:
        for logger in _on_rank_zero(trainer):
            config = read_settings(self.folder / "config.yaml")
            # A sweep's own parameters keep the names that the sweep has given them.
            logger.experiment.config.setdefaults(config | {"provenance": provenance(trainer)})
            # A resumed run without a better checkpoint saves none that Lightning would pass on.
            logger.after_save_checkpoint(trainer.checkpoint_callback)  # type: ignore[arg-type]

    def finish(self, split: DecodedSplit, captions: Captions) -> None:
        """Log the images `val/attention` and the table `val/captions`."""
        texts = [split.module.vocabulary.decode(caption.tokens) for caption in captions.values()]
        for position, text in zip(captions, texts, strict=True):
            example, epoch = split.dataset.examples[position], split.trainer.current_epoch
            references = "\n".join(reference_texts([example])[0])
            self._rows.append([str(example.image_id), epoch, text, references])
        self._rows.sort(key=lambda row: row[0])  # by image, and there by epoch
        step = split.trainer.global_step - 1  # which Lightning gives to values of a validation
        for logger in _on_rank_zero(split.trainer) if texts else ():
            columns = ["image_id", EPOCH, "caption", "references"]
            logger.log_table("val/captions", columns, self._rows, step=step)
            if split.module.backbone.located:
                with TemporaryDirectory() as folder:
                    panels = [str(Path(folder, f"{position}.png")) for position in captions]
                    for panel, (position, caption) in zip(panels, captions.items(), strict=True):
                        draw(Path(panel), split, position, caption)
                    _to_one_size(panels)
                    logger.log_image("val/attention", panels, step=step, caption=texts)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Log the test after all callbacks have written its files."""
        loggers = _on_rank_zero(trainer)
        if stage != "test" or not loggers:
            return
        import wandb

        source = json.loads((self.folder / "scores.json").read_text(encoding="utf-8"))["provenance"]
        panels: dict[int | str, Path] = {}
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, AttentionPanels):
                panels |= callback.drawn
        rows, names = [], list[str]()
        for record in read_captions(self.folder / FILE).values():
            panel, names = panels.get(record.image_id), list(record.scores)
            image = None if panel is None else wandb.Image(str(panel))
            texts = record.caption, "\n".join(record.references)
            rows.append([str(record.image_id), image, *texts, *record.scores.values()])
        columns = ["image_id", "attention", "caption", "references", *names]
        for logger in loggers:
            logger.log_table("test/captions", columns, rows, step=trainer.global_step)
            logger.experiment.summary.update({"provenance": source})


def _to_one_size(paths: Sequence[str]) -> None:
    """Pad images with white on the right and below, as W&B shows a panel's images in one size."""
    images = [Image.open(path).convert("RGB") for path in paths]
    size = max(image.width for image in images), max(image.height for image in images)
    for path, image in zip(paths, images, strict=True):
        padded = Image.new("RGB", size, "white")
        padded.paste(image)
        padded.save(path)


def _on_rank_zero(trainer: L.Trainer) -> list[WandbLogger]:
    return [
        logger
        for logger in trainer.loggers
        if trainer.is_global_zero and isinstance(logger, WandbLogger)
    ]
