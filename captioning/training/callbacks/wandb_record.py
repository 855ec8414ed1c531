"""What a W&B run holds beside the numbers that every logger gets."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import lightning as L
from annotated_types import Ge
from lightning.pytorch.loggers import WandbLogger

from captioning.config.settings import read_settings
from captioning.config.types import validated
from captioning.data.batch import Batch
from captioning.data.example import reference_texts
from captioning.training.callbacks.attention_panels import AttentionPanels, draw
from captioning.training.callbacks.first_captions import FirstCaptions
from captioning.training.module import CaptioningModule
from captioning.training.provenance import origin


class WandbRecord(L.Callback):
    """Puts into W&B where a run comes from, captions with their pictures at every validation, and its test.

    It comes with `logger=wandb`, and does nothing without that logger.

    Args:
        folder: the run folder, whose `config.yaml` is there by now.
        images: how many of the validation split's first images to show.
    """

    @validated
    def __init__(self, folder: str | Path, images: Annotated[int, Ge(0)]) -> None:
        self.folder, self.images = Path(folder), images

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Records the configuration, commit, versions and data digest."""
        for logger in _on_rank_zero(trainer):
            config = read_settings(self.folder / "config.yaml")
            # A sweep's own parameters stay as the sweep has named them.
            logger.experiment.config.setdefaults(config | {"provenance": origin(trainer)})
            # A resumed run that gets no better saves no checkpoint that Lightning would tell the logger of.
            logger.after_save_checkpoint(trainer.checkpoint_callback)  # type: ignore[arg-type]

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._first = FirstCaptions(self.images if _loggers(trainer) and not trainer.sanity_checking else 0)

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """`outputs` are the captions of the batch."""
        self._first.add(batch, outputs)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Logs the table `val/captions`."""
        assert isinstance(pl_module, CaptioningModule)
        captions = self._first.gather() if self._first.images else {}
        loggers = _on_rank_zero(trainer)
        if not captions or not loggers:
            return
        import wandb  # here, because it takes seconds and most runs do without

        examples = [trainer.datamodule.examples("val")[position] for position in captions]  # type: ignore[attr-defined]
        rows: list[list[Any]] = []
        with TemporaryDirectory() as folder:
            for example, caption, texts in zip(examples, captions.values(), reference_texts(examples), strict=True):
                picture = None
                if pl_module.backbone.located:
                    panel = Path(folder) / f"{len(rows)}.png"
                    draw(panel, pl_module, example, caption)
                    picture = wandb.Image(str(panel))
                text = pl_module.vocabulary.decode(caption.tokens)
                rows.append([trainer.current_epoch, str(example.image_id), picture, text, "\n".join(texts)])
            for logger in loggers:
                columns = ["epoch", "image_id", "attention", "caption", "references"]
                logger.log_table("val/captions", columns, rows, step=_step(trainer))

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Logs a test when all callbacks have written its files: its captions, and where its scores come from."""
        loggers = _on_rank_zero(trainer)
        if stage != "test" or not loggers:
            return
        import wandb

        source = json.loads((self.folder / "scores.json").read_text(encoding="utf-8"))["provenance"]
        text = (self.folder / "captions.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.split("\n")[:-1]]  # captions may hold U+2028
        panels = [c.drawn for c in trainer.callbacks if isinstance(c, AttentionPanels)]  # type: ignore[attr-defined]
        drawn = {image_id: wandb.Image(str(panel)) for part in panels for image_id, panel in part.items()}
        names = list(lines[0]["scores"]) if lines else []
        rows = [
            [
                str(line["image_id"]),
                drawn.get(line["image_id"]),
                line["caption"],
                "\n".join(line["references"]),
                *(line["scores"][name] for name in names),
            ]
            for line in lines
        ]
        for logger in loggers:
            columns = ["image_id", "attention", "caption", "references", *names]
            logger.log_table("test/captions", columns, rows, step=_step(trainer))
            logger.experiment.summary.update({"provenance": source})


def _loggers(trainer: L.Trainer) -> list[WandbLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]


def _on_rank_zero(trainer: L.Trainer) -> list[WandbLogger]:
    return _loggers(trainer) if trainer.is_global_zero else []


def _step(trainer: L.Trainer) -> int:
    """The step that Lightning gives to values which are logged now."""
    return trainer.fit_loop.epoch_loop._batches_that_stepped
