"""Measures at test time whether attention points at the object that the next word names.

B images, N captions per image, C prediction steps, L context vectors.
"""

from typing import Any

import lightning as L
import torch

from captioning.backbones.context import ContextSet
from captioning.data.batch import Batch
from captioning.metrics.pointing import PointingScore
from captioning.training.module import CaptioningModule

NAMES = ("pointing", "pointing (images shuffled)")


class Pointing(L.Callback):
    """The pointing score of the references under teacher forcing; silent for data without boxes.

    Beside it the same with each image's context set replaced by another image's: what a model would score whose
    attention knows the caption and the usual places, but not the image.
    """

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Looks whether any reference of the test split has a noun with a box."""
        self.metrics = [PointingScore().to(pl_module.device) for _ in NAMES]
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        self.active = any(reference.nouns for example in examples for reference in example.references)

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
        """Adds a batch; one of a single image has no other image to shuffle with and is left out."""
        if not self.active or len(batch.index) < 2:
            return
        assert isinstance(pl_module, CaptioningModule)
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        nouns = [
            [[(noun.word, noun.box) for noun in r.nouns] for r in dataset.chosen(position, epoch=0)]
            for position in batch.index.tolist()
        ]
        context = pl_module.context(batch)
        shuffled = ContextSet(context.vectors.roll(1, dims=0), context.grid, context.mask)
        for metric, images in zip(self.metrics, (context, shuffled), strict=True):
            attention = pl_module.model(images, batch.sources, need_weights=True).attention
            if attention is None:
                self.active = False
                return
            metric.update(attention, nouns, context.grid)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Logs the percentages."""
        if self.active:
            values = zip(NAMES, self.metrics, strict=True)
            pl_module.log_dict({f"test/{name}": metric.compute() for name, metric in values})
