"""Logs how the captions of every validation and of the test are worded: what goes wrong is seen, whatever the score."""

from typing import Any

import lightning as L

from captioning.data.batch import Batch
from captioning.machine import gathered
from captioning.metrics.wording import ended, novel, wording
from captioning.training.module import CaptioningModule


class LogWording(L.Callback):
    """Logs `val/bad_endings` and the others of `captioning.metrics.wording`, over the images of all processes."""

    def __init__(self) -> None:
        self._captions: dict[int, tuple[str, bool]] = {}
        self._training: frozenset[str] = frozenset()

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Notes the captions of training, as a model spells them."""
        examples = trainer.datamodule.examples("train")  # type: ignore[attr-defined]
        self._training = frozenset(" ".join(reference.words) for each in examples for reference in each.references)

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
        assert isinstance(pl_module, CaptioningModule)
        for position, caption in zip(batch.index.tolist(), outputs, strict=True):
            self._captions[position] = pl_module.vocabulary.decode(caption.tokens), caption.finished

    on_test_batch_end = on_validation_batch_end

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._log("val", pl_module)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._log("test", pl_module)

    def _log(self, split: str, module: L.LightningModule) -> None:
        every: dict[int, tuple[str, bool]] = {}
        for captions in gathered(self._captions):  # some processes have repeated images
            every |= captions
        self._captions = {}
        texts, finished = zip(*every.values(), strict=True)
        found = wording(texts) | novel(texts, self._training) | ended(finished)
        module.log_dict({f"{split}/{name}": value for name, value in found.items()})
