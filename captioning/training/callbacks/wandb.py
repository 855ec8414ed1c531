"""Tables, provenance, attention panels and the test for Weights & Biases."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from PIL import Image

from captioning.config.types import NotNegativeInt, UserPath, validated
from captioning.data.example import reference_texts
from captioning.data.readers.captions import read_captions
from captioning.runs.evaluation.captions import FILE
from captioning.runs.settings import read_settings
from captioning.training.callbacks.records import AttentionPanels, draw_panel, provenance
from captioning.training.callbacks.statistics import CaptionCallback, Captions, DecodedSplit
from captioning.training.loggers.wandb import EPOCH


class WandbRecord(CaptionCallback):
    """Log provenance, captions and attention panels to W&B.

    Of the same images at every validation, and of the test.

    The panels of a validation are one media panel of W&B, with a slider over validations. The table
    has the captions of all validations. Part of `logger=wandb`; it does nothing without that
    logger. `folder` is the run folder with its `config.yaml`.
    """

    splits = ("val",)

    @validated
    def __init__(self, folder: UserPath, images: NotNegativeInt):
        self.folder, self.images = folder, images
        self._rows: list[list[Any]] = []  # of the table

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self._rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._rows = state_dict["rows"]

    def on_fit_start(self, trainer: Trainer, *_: Any) -> None:
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
                        draw_panel(Path(panel), split, position, caption)
                    _to_one_size(panels)
                    logger.log_image("val/attention", panels, step=step, caption=texts)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
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


def _on_rank_zero(trainer: Trainer) -> list[WandbLogger]:
    return [
        logger
        for logger in trainer.loggers
        if trainer.is_global_zero and isinstance(logger, WandbLogger)
    ]
