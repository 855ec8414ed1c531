"""Draws where the model looked while it captioned a split's first images."""

import re
from pathlib import Path
from typing import Annotated, Literal

import lightning as L
import torch
from annotated_types import Ge

from captioning.config.types import validated
from captioning.data.example import Example, reference_texts
from captioning.decoding import Caption
from captioning.decoding.maps import caption_maps
from captioning.report.panels import LONGEST, save_panel
from captioning.tokens import EOS
from captioning.training.callbacks.first_captions import FirstTested
from captioning.training.module import CaptioningModule

Maps = Literal["mean", "all"]
"""What a panel shows: the map of each step as the model sums it up, or those of every layer and head."""


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
        module.vocabulary.each_word(tokens),
        every or shown,
        title=module.vocabulary.decode(caption.tokens),
        references=reference_texts([example])[0],
        frame=backbone.transform.frame(example.path),
    )


class AttentionPanels(FirstTested):
    """Saves one panel per image, named by its id.

    Args:
        folder: made when the first panel is saved.
        images: how many of the test split's first images to draw.
        maps: `mean`, or `all` for a line with every layer's and head's, which takes seconds per image.

    Attributes:
        drawn: the panels of the last test by image id, on rank 0.
    """

    @validated
    def __init__(self, folder: str | Path, images: Annotated[int, Ge(0)], maps: Maps = "mean") -> None:
        super().__init__(images)
        self.folder, self.maps = Path(folder), maps
        self.drawn: dict[int | str, Path] = {}

    def keep(self, trainer: L.Trainer, module: CaptioningModule, captions: dict[int, Caption]) -> None:
        """Draws them."""
        self.drawn = {}
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        for position, caption in captions.items():
            if caption.attention is None:
                continue
            example = examples[position]
            self.folder.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]", "_", Path(str(example.image_id)).stem)
            self.drawn[example.image_id] = self.folder / f"{name}.png"
            draw(self.drawn[example.image_id], module, example, caption, self.maps)
