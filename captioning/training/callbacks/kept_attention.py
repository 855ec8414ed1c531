"""Keeps the attention of a test with the run: `attention.npz`."""

from pathlib import Path
from typing import Annotated, Any

import lightning as L
import torch
from annotated_types import Ge

from captioning.data.batch import Batch
from captioning.decoding.maps import all_maps
from captioning.runs.kept_attention import FILE, KeptCaption, write
from captioning.tokens import EOS
from captioning.training.callbacks.attention_panels import FirstCaptions
from captioning.training.module import CaptioningModule


class KeepAttention(L.Callback):
    """Writes every map of the test split's first captions; rank 0 does for what all processes have decoded.

    There is no file where a model has no attention, or what it attends to has no place on the photograph.

    Args:
        folder: the run folder.
        images: how many.
    """

    def __init__(self, folder: str | Path, images: Annotated[int, Ge(0)]) -> None:
        self.folder, self.images = Path(folder), images

    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._first = FirstCaptions(self.images)

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
        self._first.add(batch, outputs)

    @torch.no_grad()
    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, CaptioningModule)
        captions = self._first.gather()
        if not trainer.is_global_zero or not pl_module.backbone.located:
            return
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        kept = []
        for position, caption in captions.items():
            inputs = dataset.inputs.rows([position]).to(pl_module.device)
            features = pl_module.backbone(inputs) if dataset.inputs.pixels else inputs
            maps = all_maps(pl_module.model, pl_module.backbone.context(features), caption)
            if maps:
                words = tuple(pl_module.vocabulary.decode([token]) for token in caption.tokens if token != EOS)
                kept.append(KeptCaption(dataset.examples[position].image_id, words, maps))
        if kept:
            write(self.folder / FILE, kept)
