"""Keeps the attention of a test with the run: `attention.npz`."""

from pathlib import Path
from typing import Annotated

import lightning as L
import torch
from annotated_types import Ge

from captioning.config.types import validated
from captioning.decoding import Caption
from captioning.decoding.maps import all_maps
from captioning.runs.kept_attention import FILE, KeptCaption, write
from captioning.training.callbacks.first_captions import FirstTested
from captioning.training.module import CaptioningModule


class KeepAttention(FirstTested):
    """Writes every map of the test split's first captions; there is no file where a model has no attention.

    Args:
        folder: the run folder.
        images: how many.
    """

    @validated
    def __init__(self, folder: str | Path, images: Annotated[int, Ge(0)]) -> None:
        super().__init__(images)
        self.folder = Path(folder)

    @torch.no_grad()
    def keep(self, trainer: L.Trainer, module: CaptioningModule, captions: dict[int, Caption]) -> None:
        """Writes them."""
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        kept = []
        for position, caption in captions.items():
            inputs = dataset.inputs.rows([position]).to(module.device)
            maps = all_maps(module.model, module.backbone.context_of(inputs, dataset.inputs.pixels), caption)
            if maps:
                words = tuple(module.vocabulary.each_word(caption.tokens))
                kept.append(KeptCaption(dataset.examples[position].image_id, words, maps))
        if kept:
            write(self.folder / FILE, kept)
