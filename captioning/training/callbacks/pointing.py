"""Measures at test time whether attention points at the object that the next word names.

B images, N captions per image, C prediction steps, L context vectors.
"""

from dataclasses import replace
from typing import Any

import lightning as L
import torch

from captioning.data.batch import Batch
from captioning.metrics.attention import PointingScore, framed
from captioning.training.module import CaptioningModule

NAMES = ("pointing", "pointing (images shuffled)")


class Pointing(L.Callback):
    """The pointing score of the references under teacher forcing; silent without boxes, or places to compare with them.

    Beside it the same with each image replaced by the next one of the split: what a model would score whose attention
    knows the caption and the usual places, but not the image. Neither depends on how images are dealt out in batches.
    """

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Looks whether any reference of the test split has a noun with a box, and features have a place."""
        assert isinstance(pl_module, CaptioningModule)
        self.metrics = [PointingScore().to(pl_module.device) for _ in NAMES]
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        boxes = any(reference.nouns for example in examples for reference in example.references)
        self.active = boxes and pl_module.backbone.located

    @torch.no_grad()
    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not self.active:
            return
        assert isinstance(pl_module, CaptioningModule)
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        positions = batch.index.tolist()
        nouns = []
        for position in positions:
            frame = pl_module.backbone.transform.frame(dataset.examples[position].path)
            nouns.append(framed(dataset.chosen(position, epoch=0), frame))
        others = dataset.inputs.rows([(position + 1) % len(dataset.examples) for position in positions])
        shuffled = replace(batch, inputs=others.to(batch.inputs.device))
        for metric, images in zip(self.metrics, (batch, shuffled), strict=True):
            context = pl_module.context(images)
            attention = pl_module.model(context, batch.sources, need_weights=True).attention
            if attention is None:
                self.active = False
                return
            metric.update(attention, nouns, context.grid)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.active:
            values = zip(NAMES, self.metrics, strict=True)
            pl_module.log_dict({f"test/{name}": metric.compute() for name, metric in values})
