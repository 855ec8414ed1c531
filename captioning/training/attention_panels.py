"""Draws where the model looked while it captioned the first test images."""

import re
from collections import ChainMap
from pathlib import Path
from typing import Any

import lightning as L
import torch

from captioning.data.batch import Batch
from captioning.decoding import Caption
from captioning.report.panels import save_panel
from captioning.tokens import EOS
from captioning.training.module import CaptioningModule


class AttentionPanels(L.Callback):
    """Saves one panel per image, named by its id; rank 0 draws what all processes have decoded.

    Args:
        folder: made when the first panel is saved.
        images: how many of the test split's first images to draw.
    """

    def __init__(self, folder: str | Path, images: int) -> None:
        self.folder, self.images = Path(folder), images

    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts with nothing."""
        self._captions: dict[int, Caption] = {}

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """`outputs` are the captions of `test_step`."""
        for position, caption in zip(batch.index.tolist(), outputs, strict=True):
            if position < self.images:
                self._captions[position] = caption

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Draws."""
        assert isinstance(pl_module, CaptioningModule)
        parts = [self._captions]
        if trainer.world_size > 1:
            parts *= trainer.world_size
            torch.distributed.all_gather_object(parts, self._captions)
        if not trainer.is_global_zero:
            return
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        for position, caption in sorted(ChainMap(*parts).items()):
            if caption.attention is None:
                continue
            example = examples[position]
            words = [pl_module.vocabulary.decode([token]) for token in caption.tokens if token != EOS]
            maps = caption.attention[: len(words)].unflatten(1, pl_module.backbone.grid)
            photograph = pl_module.backbone.transform.read(example.path) / 255
            self.folder.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]", "_", Path(str(example.image_id)).stem)
            save_panel(self.folder / f"{name}.png", photograph, words, maps, title=" ".join(words))
