"""The captions of a split's first images, whichever processes decode them."""

from collections import ChainMap
from collections.abc import Iterable
from typing import Any

import lightning as L

from captioning.data.batch import Batch
from captioning.decoding import Caption
from captioning.machine import gathered
from captioning.training.module import CaptioningModule


class FirstCaptions:
    """Collects them.

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


class FirstTested(L.Callback):
    """Gives those of the test split to `keep` on rank 0, if what the model attends to has a place on the photograph.

    Args:
        images: how many.
    """

    def __init__(self, images: int) -> None:
        self.images = images

    def keep(self, trainer: L.Trainer, module: CaptioningModule, captions: dict[int, Caption]) -> None:
        """What a subclass does with the captions, by position in the split and in its order."""
        raise NotImplementedError

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
        if trainer.is_global_zero and pl_module.backbone.located:
            self.keep(trainer, pl_module, captions)
