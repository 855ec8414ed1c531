"""Draws where the model looked while it captioned a split's first images."""

import re
from collections import ChainMap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import lightning as L
import torch
from annotated_types import Ge

from captioning.data.batch import Batch
from captioning.data.example import Example, reference_texts
from captioning.decoding import Caption
from captioning.decoding.maps import caption_maps
from captioning.machine import gathered
from captioning.report.panels import LONGEST, save_panel
from captioning.tokens import EOS
from captioning.training.module import CaptioningModule

Maps = Literal["mean", "all"]
"""What a panel shows: the map of each step as the model sums it up, or those of every layer and head."""


class FirstCaptions:
    """The captions of a split's first images, whichever processes decode them.

    Args:
        images: how many.
    """

    def __init__(self, images: int) -> None:
        self.images = images
        self._captions: dict[int, Caption] = {}

    def add(self, batch: Batch, captions: Iterable[Caption]) -> None:
        """Keeps those of a batch that are among the first."""
        for position, caption in zip(batch.index.tolist(), captions, strict=True):
            if position < self.images:
                self._captions[position] = caption

    def gather(self) -> dict[int, Caption]:
        """The captions of all processes, by position in the split and in its order. Collective."""
        return dict(sorted(ChainMap(*gathered(self._captions)).items()))


def draw(path: Path, module: CaptioningModule, example: Example, caption: Caption, maps: Maps = "mean") -> None:
    """Saves the panel of a captioned photograph as `path` and as PDF; without attention it shows the photograph alone.

    The backbone's features are `located`, or there is nothing to lay over the photograph.
    """
    backbone = module.backbone
    tokens, shown = [], torch.zeros(0, *backbone.grid)
    if caption.attention is not None:
        tokens = [token for token in caption.tokens if token != EOS]
        shown = caption.attention[: len(tokens)].unflatten(1, backbone.grid)
    every = {}
    if tokens and maps == "all":
        image = backbone.transform.read(example.path)[None].to(module.device)
        every = caption_maps(module.model, backbone.context(backbone(image)), tokens)
    save_panel(
        path,
        backbone.transform.whole(example.path, LONGEST) / 255,
        [module.vocabulary.decode([token]) for token in tokens],
        every or shown,
        title=module.vocabulary.decode(caption.tokens),
        references=reference_texts([example])[0],
        frame=backbone.transform.frame(example.path),
    )


class AttentionPanels(L.Callback):
    """Saves one panel per image, named by its id; rank 0 draws what all processes have decoded.

    Args:
        folder: made when the first panel is saved.
        images: how many of the test split's first images to draw.
        maps: `mean`, or `all` for a line with every layer's and head's, which takes seconds per image.

    Attributes:
        drawn: the panels of the last test by image id, on rank 0.
    """

    def __init__(self, folder: str | Path, images: Annotated[int, Ge(0)], maps: Maps = "mean") -> None:
        self.folder, self.images = Path(folder), images
        self.maps: Maps = maps
        self.drawn: dict[int | str, Path] = {}

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

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, CaptioningModule)
        captions = self._first.gather()
        self.drawn = {}
        if not trainer.is_global_zero or not pl_module.backbone.located:
            return
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        for position, caption in captions.items():
            if caption.attention is None:
                continue
            example = examples[position]
            self.folder.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]", "_", Path(str(example.image_id)).stem)
            self.drawn[example.image_id] = self.folder / f"{name}.png"
            draw(self.drawn[example.image_id], pl_module, example, caption, self.maps)
