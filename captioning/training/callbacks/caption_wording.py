"""Logs how the captions of every validation and of the test are worded: what goes wrong is seen, whatever the score."""

from typing import Any

import lightning as L

from captioning.data.batch import Batch
from captioning.machine import gathered
from captioning.metrics.wording import Said, TrainingCaptions, of_model
from captioning.training.module import CaptioningModule


class LogWording(L.Callback):
    """Logs `val/bad_endings` and the others of `captioning.metrics.wording`, over the images of all processes."""

    def __init__(self) -> None:
        self._captions: dict[int, Said] = {}
        self._training = TrainingCaptions([])

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Notes the captions of training, as a model spells them."""
        examples = trainer.datamodule.examples("train")  # type: ignore[attr-defined]
        self._training = TrainingCaptions(reference.words for each in examples for reference in each.references)

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
            words = pl_module.vocabulary.decode(caption.tokens)
            self._captions[position] = Said(words, caption.finished, caption.entropy)

    on_test_batch_end = on_validation_batch_end

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._log("val", pl_module)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._log("test", pl_module)

    def _log(self, split: str, module: L.LightningModule) -> None:
        every: dict[int, Said] = {}
        for captions in gathered(self._captions):  # some processes have repeated images
            every |= captions
        self._captions = {}
        found = of_model(list(every.values()), self._training)
        module.log_dict({f"{split}/{name}": value for name, value in found.items()})
